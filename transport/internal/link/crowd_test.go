package link

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go/testutils/simnet"
	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/transport/internal/transporttest"
	"github.com/weft-project/weft/transport/internal/wire"
)

// host is a machine whose sockets are in memory, so that a bubble's clock stands still while
// packets are on their way.
type host struct {
	wire simnet.PerfectRouter

	mu   sync.Mutex
	port int
}

func (h *host) bind(context.Context, string, string) (net.PacketConn, error) {
	h.mu.Lock()
	h.port++
	at := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1).To4(), Port: h.port}
	h.mu.Unlock()
	return simnet.NewBlockingSimConn(at, &h.wire), nil
}

func (h *host) network(t *testing.T, cfg Config) wire.Network {
	n, err := New(cfg)
	require.NoError(t, err)
	n.(*network).bind = h.bind
	return n
}

// On real sockets this is a race of handshakes with their timeouts, which a busy machine loses.
func TestSixtyFourWorkersOfOneHostAreAllAdmittedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &host{}
		cfg := Config{Identity: memberOf(t, transporttest.Token(), "worker", time.Now), Lanes: []string{wire.LaneQUIC}}
		l, err := h.network(t, cfg).Listen(t.Context(), "127.0.0.1:0")
		require.NoError(t, err)
		start := time.Now()
		c, cancel := context.WithTimeout(t.Context(), time.Minute) // of the bubble: who waits for a link that was refused does not wait for ever
		defer cancel()
		links, errs := make([]wire.Link, 2*64), make([]error, 2*64)
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				links[i], errs[i] = h.network(t, cfg).Dial(c, l.Addr())
			})
			wg.Go(func() {
				links[64+i], errs[64+i] = l.Accept(c)
			})
		}
		wg.Wait()
		require.NoError(t, errors.Join(errs...))
		require.Less(t, time.Since(start), time.Second)
		for _, link := range links {
			require.NoError(t, link.Err())
		}
		for _, link := range links {
			require.NoError(t, link.Close("done"))
		}
		require.NoError(t, l.Close())
	})
}
