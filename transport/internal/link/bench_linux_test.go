package link

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/ipv4"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/eager"
	"github.com/weft-project/weft/transport/internal/identity"
	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/transporttest"
	"github.com/weft-project/weft/transport/internal/wire"
)

// BenchmarkQUIC sends tensors of 16 MiB over lane quic, with datagrams joined (gro) and without
// (plain), and as many bytes over a bare stream of quic-go (bare), one after the other in each
// iteration, and waits for a word in answer. It gives each way's speed and the processor time of
// both ends, and ratios of the medians. Both ends are in this process.
func BenchmarkQUIC(b *testing.B) {
	const bytes = 16 << 20
	ways := []struct {
		name string
		send func() error
	}{
		{"gro", laneSender(b, bytes, nil)},
		{"plain", laneSender(b, bytes, bindApart)},
		{"bare", bareSender(b, bytes)},
	}
	took, spent := map[string][]float64{}, map[string][]float64{}
	for _, w := range ways {
		for range 3 { // warm: windows and packets have grown
			require.NoError(b, w.send())
		}
	}
	for b.Loop() {
		for _, w := range ways {
			start, used := time.Now(), processorTime()
			require.NoError(b, w.send())
			took[w.name] = append(took[w.name], time.Since(start).Seconds())
			spent[w.name] = append(spent[w.name], (processorTime() - used).Seconds())
		}
	}
	const gb = bytes / 1e9
	for _, w := range ways {
		b.ReportMetric(gb/median(took[w.name]), w.name+"-GB/s")
		b.ReportMetric(median(spent[w.name])/gb, w.name+"-s/GB")
	}
	b.ReportMetric(median(took["plain"])/median(took["gro"]), "gro/plain")
	b.ReportMetric(median(took["bare"])/median(took["gro"]), "gro/bare")
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// bindApart binds sockets whose datagrams the system does not join.
func bindApart(c context.Context, family, addr string) (net.PacketConn, error) {
	pc, err := new(net.ListenConfig).ListenPacket(c, family, addr)
	if err != nil {
		return nil, err
	}
	u := &eagerUDP{UDPConn: pc.(*net.UDPConn), lookout: eager.NewLookout(), reads: lane.NewCourtesy(nil), writes: lane.NewCourtesy(nil)}
	u.looking, u.calm = ipv4.NewPacketConn(u), ipv4.NewPacketConn(u.UDPConn)
	return u, nil
}

// laneSender makes a link whose sockets bind binds, if it is not nil, and sends a tensor on it.
func laneSender(b *testing.B, bytes int, bind func(c context.Context, family, addr string) (net.PacketConn, error)) func() error {
	id, err := identity.FromToken(transporttest.Token(), transporttest.Job, "w", time.Now)
	require.NoError(b, err)
	n, err := New(Config{Identity: id, Lanes: []string{wire.LaneQUIC}})
	require.NoError(b, err)
	if bind != nil {
		n.(*network).bind = bind
	}
	l := transporttest.Listen(b, n)
	here, err := n.Dial(b.Context(), l.Addr())
	require.NoError(b, err)
	there, err := l.Accept(b.Context())
	require.NoError(b, err)
	b.Cleanup(func() { _ = here.Close(""); _ = there.Close("") })
	go answerEmpty(there)
	x := transporttest.Tensor(b, rand.New(rand.NewPCG(1, 1)), device.Host(), device.Float32, bytes/4)
	b.Cleanup(func() { _ = x.Buf.Release() })
	return func() error {
		s, err := here.Open(b.Context())
		if err != nil {
			return err
		}
		defer s.Reset(nil)
		if err := s.Send(b.Context(), &wire.Message{Tensors: []wire.Tensor{x}, End: true}); err != nil {
			return err
		}
		m, err := s.Recv(b.Context(), nil)
		if err == nil {
			m.Release()
		}
		return err
	}
}

// answerEmpty answers each message without its tensors.
func answerEmpty(l wire.Link) {
	c := context.Background()
	for {
		s, err := l.Accept(c)
		if err != nil {
			return
		}
		m, err := s.Recv(c, nil)
		if err == nil {
			m.Release()
			_ = s.Send(c, &wire.Message{End: true})
		}
		s.Reset(nil)
	}
}

// bareSender makes a connection of quic-go alone.
func bareSender(b *testing.B, bytes int) func() error {
	id, err := identity.FromToken(transporttest.Token(), transporttest.Job, "w", time.Now)
	require.NoError(b, err)
	n := &network{cfg: Config{}.withDefaults()}
	ql, err := quic.ListenAddr("127.0.0.1:0", identity.TLSConfig(id, wire.ALPN), n.quicConfig(1))
	require.NoError(b, err)
	b.Cleanup(func() { _ = ql.Close() })
	conn, err := quic.DialAddr(b.Context(), ql.Addr().String(), identity.TLSConfig(id, wire.ALPN), n.quicConfig(1))
	require.NoError(b, err)
	b.Cleanup(func() { _ = conn.CloseWithError(0, "") })
	served, err := ql.Accept(b.Context())
	require.NoError(b, err)
	s, err := conn.OpenStream()
	require.NoError(b, err)
	go func() {
		in, err := served.AcceptStream(context.Background())
		buf := make([]byte, bytes)
		for err == nil {
			if _, err = io.ReadFull(in, buf); err == nil {
				_, err = in.Write(buf[:1])
			}
		}
	}()
	buf := make([]byte, bytes)
	return func() error {
		if _, err := s.Write(buf); err != nil {
			return fmt.Errorf("bare: %w", err)
		}
		_, err := io.ReadFull(s, make([]byte, 1))
		return err
	}
}
