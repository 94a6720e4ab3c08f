package transport_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/transport"
	"github.com/weft-project/weft/transport/transporttest"
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
		return network(b, transport.Config{}), network(b, transport.Config{})
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
