package transport

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/weft-project/weft/transport/internal/transporttest"

	"github.com/quic-go/quic-go"
	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
)

// staller begins handshakes from one address and ends none. It shows that it receives what is sent to its address, and no more. It has
// overheard the marks of a member.
type staller struct {
	tr  *quic.Transport
	udp net.PacketConn
}

func newStaller(t testing.TB, host string, overheard marks) *staller {
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
func (s *staller) stall(c context.Context, id *Identity, to net.Addr, n int) *sync.WaitGroup {
	var under sync.WaitGroup
	for range n {
		under.Go(func() {
			for c.Err() == nil {
				_, _ = s.tr.Dial(c, to, tlsConfig(id, ALPN), &quic.Config{HandshakeIdleTimeout: listenTimeout})
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

// occupy takes all places for strangers but some, in the name of hosts that never let them go unless they are evicted.
func occupy(l Listener, but int, hosts ...string) {
	g := l.(*quicListener).gate
	g.mu.Lock()
	defer g.mu.Unlock()
	for n := range handshakesMost - but {
		all := g.a.strangers
		x := &place{of: all, account: all.account(time.Now(), hosts[n%len(hosts)])}
		x.end = func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			x.leave()
		}
		x.account.held++
		all.under = append(all.under, x)
	}
}

// full says whether the strangers' places of a listener are all taken.
func full(l Listener) bool {
	g := l.(*quicListener).gate
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.a.strangers.under)+g.a.strangers.evicted >= handshakesMost
}

func TestStalledHandshakesFromFourAddressesKeepNoMemberOut(t *testing.T) {
	leak.Check(t)
	id := memberOf(t, transporttest.Token(), "w", time.Now)
	_, log := transporttest.NewLogBook()
	l := listen(t, Config{Identity: id, Logger: log, Lanes: []string{LaneQUIC}})
	c, stop := context.WithCancel(t.Context())
	defer stop()
	stranger := memberOf(t, NewToken(), "stranger", time.Now)
	hosts := []string{"127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"}
	occupy(l, 16, hosts...)
	for _, host := range hosts { // a few really stall: that costs much
		under := newStaller(t, host, marksOf(id)).stall(c, stranger, udpAddr(t, l.Addr()), 8)
		defer under.Wait()
	}
	defer stop()
	require.Eventually(t, func() bool { return full(l) }, 30*time.Second, time.Millisecond)
	for range 10 {
		n, err := New(Config{Identity: id, Lanes: []string{LaneQUIC}})
		require.NoError(t, err)
		link, err := n.Dial(t.Context(), l.Addr())
		require.NoError(t, err)
		require.NoError(t, link.Close(""))
	}
}
