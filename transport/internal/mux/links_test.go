package mux_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/transport/internal/identity"
	"github.com/weft-project/weft/transport/internal/link"
	"github.com/weft-project/weft/transport/internal/mux"
	"github.com/weft-project/weft/transport/internal/transporttest"
	"github.com/weft-project/weft/transport/internal/wire"
)

// network makes links of a member of the tests' job.
func network(t testing.TB, cfg link.Config) wire.Network {
	id, err := identity.FromToken(transporttest.Token(), transporttest.Job, "w", time.Now)
	require.NoError(t, err)
	cfg.Identity = id
	n, err := link.New(cfg)
	require.NoError(t, err)
	return n
}

func TestSessionsInMemoryAreANetwork(t *testing.T) {
	for name, cfg := range map[string]mux.MemConfig{
		"whole":              {},
		"one byte at a time": {Chop: func(_ *rand.Rand, most int) int { return 1 + most/4096*1024 }},
		"in random pieces":   {Chop: func(r *rand.Rand, most int) int { return 1 + r.IntN(min(most, 1000)) }},
		"hauled":             {Haul: true},
	} {
		t.Run(name, func(t *testing.T) {
			transporttest.Run(t, func(t testing.TB) (dialer, listener wire.Network) {
				n, err := mux.NewMemNetwork(cfg)
				require.NoError(t, err)
				return n, n
			})
		})
	}
}

func TestGarbageEndsItsStreamAndNothingElse(t *testing.T) {
	leak.Check(t)
	n := network(t, link.Config{})
	l := transporttest.Listen(t, n)
	here, err := n.Dial(t.Context(), l.Addr())
	require.NoError(t, err)
	defer here.Close("")
	there, err := l.Accept(t.Context())
	require.NoError(t, err)
	defer there.Close("")

	garbage := bytes.Repeat([]byte{0xff}, 100)
	bad, err := here.Open(t.Context())
	require.NoError(t, err)
	require.NoError(t, mux.SendBytes(t.Context(), bad, garbage))
	s, err := there.Accept(t.Context())
	require.NoError(t, err)
	_, err = s.Recv(t.Context(), nil)
	require.ErrorIs(t, err, wire.ErrFrame)
	require.ErrorIs(t, context.Cause(s.Context()), wire.ErrReset)
	_, err = bad.Recv(t.Context(), nil)
	require.ErrorIs(t, err, wire.ErrReset)

	good, err := here.Open(t.Context())
	require.NoError(t, err)
	defer good.Reset(nil)
	require.NoError(t, good.Send(t.Context(), &wire.Message{Header: []byte("hi")}))
	s, err = there.Accept(t.Context())
	require.NoError(t, err)
	defer s.Reset(nil)
	m, err := s.Recv(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, "hi", string(m.Header))
}

// BenchmarkCall makes calls of one message each way, one at a time and many at once.
func BenchmarkCall(b *testing.B) {
	for _, lane := range []string{"quic", "memory", "unix"} {
		b.Run("lane="+lane, func(b *testing.B) {
			p := transporttest.Link(b, func(b testing.TB) (dialer, listener wire.Network) {
				if lane == "quic" {
					cfg := link.Config{Lanes: []string{wire.LaneQUIC}}
					return network(b, cfg), network(b, cfg)
				}
				n, err := mux.NewMemNetwork(mux.MemConfig{Unix: lane == "unix"})
				require.NoError(b, err)
				return n, n
			})
			go transporttest.Answer(p.Served)
			for _, flight := range []int{1, 64} {
				b.Run(fmt.Sprintf("inflight=%d", flight), func(b *testing.B) {
					b.ReportAllocs()
					left := make(chan struct{}, b.N)
					for range b.N {
						left <- struct{}{}
					}
					close(left)
					var wg sync.WaitGroup
					b.ResetTimer()
					for range flight {
						wg.Go(func() { transporttest.Call(b, p.Dialed, left) })
					}
					wg.Wait()
				})
			}
		})
	}
}
