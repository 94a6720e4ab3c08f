//go:build linux

package transport_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/transport"
	"github.com/weft-project/weft/transport/internal/transporttest"
)

// BenchmarkLocal measures the lane between two processes: an empty message and back, and a tensor
// there with an empty message back. tensor=same sends the same one again; tensor=new makes and
// writes another one for each, and leaves it to the collector.
func BenchmarkLocal(b *testing.B) {
	for _, lane := range []string{transport.LaneLocal, transport.LaneQUIC} {
		_, link := startChildOn(b, lane)
		s, err := link.Open(b.Context())
		require.NoError(b, err)
		turn := func(b *testing.B, ts ...transport.Tensor) {
			require.NoError(b, s.Send(b.Context(), &transport.Message{Kind: doDrop, Tensors: ts}))
			_, err := s.Recv(b.Context(), nil)
			require.NoError(b, err)
		}
		b.Run(fmt.Sprintf("lane=%s/empty", lane), func(b *testing.B) {
			for b.Loop() {
				turn(b)
			}
		})
		x := transporttest.Tensor(b, rand.New(rand.NewPCG(1, 1)), device.Host(), device.Float32, 4<<20)
		b.Run(fmt.Sprintf("lane=%s/bytes=16MiB/tensor=same", lane), func(b *testing.B) {
			b.SetBytes(16 << 20)
			for b.Loop() {
				turn(b, x)
			}
		})
		fresh := func(b *testing.B) transport.Tensor {
			y := x
			var err error
			y.Buf, err = device.Host().Alloc(16 << 20)
			require.NoError(b, err)
			require.NoError(b, device.Copy(y.Buf, x.Buf))
			y.Buf.Disown()
			return y
		}
		b.Run(fmt.Sprintf("lane=%s/bytes=16MiB/tensor=new", lane), func(b *testing.B) {
			b.SetBytes(16 << 20)
			for b.Loop() {
				turn(b, fresh(b))
			}
		})
		b.Run(fmt.Sprintf("lane=%s/bytes=16MiB/tensor=unsent", lane), func(b *testing.B) { // what making them takes
			b.SetBytes(16 << 20)
			for b.Loop() {
				fresh(b)
			}
		})
		s.Reset(nil)
		require.NoError(b, x.Buf.Release())
	}
}
