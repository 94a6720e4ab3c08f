package transport_test

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/transport"
	"github.com/weft-project/weft/transport/internal/transporttest"
)

// relay stands between one dialler and a listener, and can be silent.
type relay struct {
	front  *net.UDPConn // the dialler's peer
	back   *net.UDPConn // the listener's peer
	silent atomic.Bool
	// dropped counts what did not pass, forth and back.
	dropped [2]atomic.Int64

	mu      sync.Mutex
	dialler *net.UDPAddr
}

func newRelay(t *testing.T, to string) *relay {
	addr, err := net.ResolveUDPAddr("udp4", to)
	require.NoError(t, err)
	r := &relay{}
	r.front, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	r.back, err = net.DialUDP("udp4", nil, addr)
	require.NoError(t, err)
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = r.front.Close(); _ = r.back.Close(); wg.Wait() })
	wg.Go(func() { r.forward(r.front, 0) })
	wg.Go(func() { r.forward(r.back, 1) })
	return r
}

func (r *relay) addr() string { return r.front.LocalAddr().String() }

func (r *relay) forward(from *net.UDPConn, way int) {
	b := make([]byte, 64<<10)
	for {
		n, sender, err := from.ReadFromUDP(b)
		if err != nil {
			return
		}
		if r.silent.Load() {
			r.dropped[way].Add(1)
			continue
		}
		if way == 0 {
			r.mu.Lock()
			r.dialler = sender
			r.mu.Unlock()
			_, _ = r.back.Write(b[:n])
			continue
		}
		r.mu.Lock()
		to := r.dialler
		r.mu.Unlock()
		_, _ = r.front.WriteToUDP(b[:n], to)
	}
}

// hush drops everything until that many packets each way are lost.
func (r *relay) hush(t *testing.T, packets int64) {
	r.silent.Store(true)
	begin := [2]int64{r.dropped[0].Load(), r.dropped[1].Load()}
	require.Eventually(t, func() bool {
		return r.dropped[0].Load() >= begin[0]+packets && r.dropped[1].Load() >= begin[1]+packets
	}, time.Minute, time.Millisecond)
	r.silent.Store(false)
}

// relayed makes a link whose packets all pass a relay.
func relayed(t *testing.T, cfg transport.Config) (r *relay, dialled, served transport.Link) {
	leak.Check(t)
	cfg.Lanes = []string{transport.LaneQUIC}
	l, err := network(t, cfg).Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	r = newRelay(t, l.Addr())
	dialled, err = network(t, cfg).Dial(t.Context(), r.addr())
	require.NoError(t, err)
	served, err = l.Accept(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = dialled.Close(""); _ = served.Close(""); _ = l.Close() })
	return r, dialled, served
}

func TestAShortSilenceHealsWithoutAnError(t *testing.T) {
	r, dialled, served := relayed(t, transport.Config{IdleTimeout: time.Minute, KeepAlive: 20 * time.Millisecond})
	go echoes(served)
	s, err := dialled.Open(t.Context())
	require.NoError(t, err)
	defer s.Reset(nil)
	large := &transport.Message{Tensors: []transport.Tensor{transporttest.Tensor(t, rand.New(rand.NewPCG(1, 1)), device.Host(), device.Float32, 1<<20)}}
	defer large.Release()
	for range 2 {
		sent := make(chan error, 1)
		go func() { sent <- s.Send(t.Context(), large) }()
		r.hush(t, 4)
		got, err := s.Recv(t.Context(), nil)
		require.NoError(t, err)
		transporttest.Same(t, large.Tensors, got.Tensors)
		got.Release()
		require.NoError(t, <-sent)
	}
	require.NoError(t, dialled.Err())
	require.NoError(t, served.Err())
}

func TestALongSilenceIsALostPeerAtBothEnds(t *testing.T) {
	r, dialled, served := relayed(t, transport.Config{IdleTimeout: 500 * time.Millisecond, KeepAlive: 100 * time.Millisecond})
	s, err := dialled.Open(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Send(t.Context(), &transport.Message{}))
	other, err := served.Accept(t.Context())
	require.NoError(t, err)
	r.silent.Store(true)
	_, err = s.Recv(t.Context(), nil)
	require.ErrorIs(t, err, transport.ErrPeerLost)
	for _, l := range []transport.Link{dialled, served} {
		<-l.Done()
		require.ErrorIs(t, l.Err(), transport.ErrPeerLost)
	}
	require.ErrorIs(t, context.Cause(other.Context()), transport.ErrPeerLost)
	s.Reset(nil)
	other.Reset(nil)
}
