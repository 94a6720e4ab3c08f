package transport_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/transport"
	"github.com/weft-project/weft/transport/internal/transporttest"
)

// echoes answers every message on every stream until the link is gone.
func echoes(l transport.Link) {
	c := context.Background()
	for {
		s, err := l.Accept(c)
		if err != nil {
			return
		}
		go func() {
			defer s.Reset(nil)
			for {
				m, err := s.Recv(c, nil)
				if err != nil {
					_ = s.CloseSend()
					return
				}
				err = s.Send(c, m)
				m.Release()
				if err != nil {
					return
				}
			}
		}()
	}
}

func BenchmarkQUICEcho(b *testing.B) {
	p := transporttest.Link(b, func(b testing.TB) (dialer, listener transport.Network) {
		cfg := transport.Config{Lanes: []string{transport.LaneQUIC}}
		return network(b, cfg), network(b, cfg)
	})
	go echoes(p.Served)
	c := context.Background()
	for _, floats := range []int{0, 9, 1 << 18, 4 << 20} {
		m := &transport.Message{Header: make([]byte, 50)}
		if floats > 0 {
			m.Tensors = []transport.Tensor{transporttest.Tensor(b, rand.New(rand.NewPCG(1, 1)), device.Host(), device.Float32, floats)}
		}
		echo := func(b *testing.B, s transport.Stream) {
			require.NoError(b, s.Send(c, m))
			got, err := s.Recv(c, nil)
			require.NoError(b, err)
			got.Release()
		}
		b.Run(fmt.Sprintf("bytes=%d/stream=kept", floats*4), func(b *testing.B) {
			s, err := p.Dialed.Open(c)
			require.NoError(b, err)
			defer s.Reset(nil)
			b.SetBytes(int64(floats) * 4 * 2)
			b.ReportAllocs()
			for b.Loop() {
				echo(b, s)
			}
		})
		b.Run(fmt.Sprintf("bytes=%d/stream=each", floats*4), func(b *testing.B) {
			b.SetBytes(int64(floats) * 4 * 2)
			b.ReportAllocs()
			for b.Loop() {
				s, err := p.Dialed.Open(c)
				require.NoError(b, err)
				echo(b, s)
				require.NoError(b, s.CloseSend())
				_, err = s.Recv(c, nil)
				require.Error(b, err)
			}
		})
		m.Release()
	}
}

// BenchmarkCallBeside makes small calls while large tensors flow on the same link.
func BenchmarkCallBeside(b *testing.B) {
	for _, busy := range []bool{false, true} {
		b.Run(fmt.Sprintf("busy=%v", busy), func(b *testing.B) {
			p := transporttest.Link(b, func(b testing.TB) (dialer, listener transport.Network) {
				cfg := transport.Config{Lanes: []string{transport.LaneQUIC}}
				return network(b, cfg), network(b, cfg)
			})
			go transporttest.Answer(p.Served)
			c, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			if busy {
				m := &transport.Message{Tensors: []transport.Tensor{transporttest.Tensor(b, rand.New(rand.NewPCG(1, 1)), device.Host(), device.Float32, 4<<20)}, End: true}
				defer m.Release()
				wg.Go(func() {
					for c.Err() == nil {
						s, err := p.Dialed.Open(c)
						if err == nil {
							err = s.Send(c, m)
						}
						if err == nil {
							var got *transport.Message
							if got, err = s.Recv(c, nil); err == nil {
								got.Release()
							}
						}
						if err != nil {
							return
						}
					}
				})
			}
			left := make(chan struct{}, b.N)
			for range b.N {
				left <- struct{}{}
			}
			close(left)
			times := make([]time.Duration, 0, b.N)
			b.ResetTimer()
			for range left {
				one := make(chan struct{}, 1)
				one <- struct{}{}
				close(one)
				began := time.Now()
				transporttest.Call(b, p.Dialed, one)
				times = append(times, time.Since(began))
			}
			b.StopTimer()
			cancel()
			wg.Wait()
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-µs")
		})
	}
}
