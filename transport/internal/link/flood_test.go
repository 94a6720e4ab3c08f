package link

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/transport/internal/identity"
	"github.com/weft-project/weft/transport/internal/places"
	"github.com/weft-project/weft/transport/internal/transporttest"
	"github.com/weft-project/weft/transport/internal/wire"
)

// staller begins handshakes from one address and ends none. It shows that it receives what is sent
// to its address, and no more. It has overheard the marks of a member.
type staller struct {
	tr  *quic.Transport
	udp net.PacketConn
}

func newStaller(t testing.TB, host string, overheard identity.Marks) *staller {
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(host)})
	require.NoError(t, err)
	s := &staller{udp: udp, tr: &quic.Transport{Conn: &retryOnly{udp}, ConnectionIDGenerator: overheard}}
	t.Cleanup(s.close)
	return s
}

func (s *staller) close() {
	_ = s.tr.Close()
	_ = s.udp.Close()
}

// stall has n handshakes under way until c ends. One that was given up begins anew.
func (s *staller) stall(c context.Context, id *identity.Identity, to net.Addr, n int) *sync.WaitGroup {
	var under sync.WaitGroup
	for range n {
		under.Go(func() {
			for c.Err() == nil {
				_, _ = s.tr.Dial(c, to, identity.TLSConfig(id, wire.ALPN), &quic.Config{HandshakeIdleTimeout: listenTimeout})
			}
		})
	}
	return &under
}

// retryOnly hears nothing but the demand to show that it hears.
type retryOnly struct{ net.PacketConn }

func (d *retryOnly) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		if n, from, err := d.PacketConn.ReadFrom(b); err != nil || n > 0 && b[0]&0xf0 == 0xf0 {
			return n, from, err
		}
	}
}

func udpAddr(t testing.TB, addr string) *net.UDPAddr {
	to, err := net.ResolveUDPAddr("udp", addr)
	require.NoError(t, err)
	return to
}

// occupy takes all places for strangers but some, in the name of hosts that never let them go
// unless they are evicted.
func occupy(l wire.Listener, but int, hosts ...string) {
	g := l.(*Listener).gate
	g.mu.Lock()
	defer g.mu.Unlock()
	for n := range handshakesMost - but {
		all := g.a.strangers
		x := &places.Place{Of: all, Account: all.Account(time.Now(), hosts[n%len(hosts)])}
		x.End = func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			x.Leave()
		}
		x.Account.Held++
		all.Under = append(all.Under, x)
	}
}

// full says whether the strangers' places of a listener are all taken.
func full(l wire.Listener) bool {
	g := l.(*Listener).gate
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.a.strangers.Under)+g.a.strangers.Evicted >= handshakesMost
}

func TestStalledHandshakesFromFourAddressesKeepNoMemberOut(t *testing.T) {
	leak.Check(t)
	id := memberOf(t, transporttest.Token(), "w", time.Now)
	_, log := transporttest.NewLogBook()
	l := listen(t, Config{Identity: id, Logger: log, Lanes: []string{wire.LaneQUIC}})
	c, stop := context.WithCancel(t.Context())
	defer stop()
	stranger := memberOf(t, identity.NewToken(), "stranger", time.Now)
	hosts := []string{"127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"}
	occupy(l, 16, hosts...)
	for _, host := range hosts { // a few really stall: that costs much
		under := newStaller(t, host, identity.MarksOf(id)).stall(c, stranger, udpAddr(t, l.Addr()), 8)
		defer under.Wait()
	}
	defer stop()
	require.Eventually(t, func() bool { return full(l) }, 30*time.Second, time.Millisecond)
	for range 10 {
		n, err := New(Config{Identity: id, Lanes: []string{wire.LaneQUIC}})
		require.NoError(t, err)
		link, err := n.Dial(t.Context(), l.Addr())
		require.NoError(t, err)
		require.NoError(t, link.Close(""))
	}
}
