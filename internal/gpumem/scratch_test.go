package gpumem_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/gpumem"
	"github.com/weft-project/weft/internal/ptx"
)

// runs has programs, each on a stream of its own, borrow scratch of several sizes and take and
// release buffers, over and over; nobody waits.
func (b *bench) runs(programs, times int) {
	r := rand.New(rand.NewPCG(1, 6))
	var own []*device.Buffer
	for k := range programs {
		own = append(own, b.alloc(byte(k)))
	}
	require.NoError(b, b.g.Sync())
	u := &gpumem.Use{Access: []gpumem.Access{gpumem.Read | gpumem.Write, gpumem.Write}}
	for range times {
		for _, x := range own {
			bytes := 1 << (12 + r.IntN(8))
			bufs := []*device.Buffer{x, nil}
			hint := b.g.Where(u, bufs)
			y, err := b.d.AllocFor(bytes, hint)
			require.NoError(b, err)
			bufs[1] = y
			s, err := b.d.BorrowFor(bytes, hint)
			require.NoError(b, err)
			require.NoError(b, b.g.Run(work(func(to cuda.Stream) error {
				return errors.Join(to.Copy(s.Addr(), x.Addr(), size), to.Copy(y.Addr(), s.Addr(), size), to.Copy(x.Addr(), y.Addr(), size))
			}), u, bufs, &s))
			s.Return()
			require.NoError(b, y.Release())
		}
	}
	for k, x := range own {
		require.Equal(b, byte(k), b.get(x))
		require.NoError(b, x.Release())
	}
}

func TestMemoryDoesNotGrowWhileNobodyKnowsThatWorkIsDone(t *testing.T) {
	for _, streams := range []int{1, 4} {
		for _, programs := range []int{4, 7} {
			b := newBench(t, 5, streams)
			b.runs(programs, 100)
			held := b.d.Stats().PooledBytes
			if streams == 1 {
				require.LessOrEqual(t, held, once)
			} else {
				require.Greater(t, held, once, "or the programs would wait for one another")
				require.LessOrEqual(t, held, 2*int64(streams)*once)
			}
			b.runs(programs, 400)
			require.Equal(t, held, b.d.Stats().PooledBytes)
			require.NoError(t, b.d.Close())
		}
	}
}

// once is what runs need one after another: a buffer and scratch of each size, and each program's
// own.
const once = int64(2*(1<<20-1<<12) + 1<<11)

func TestOnASmallGPUMemoryForProgramsSideBySideIsAnEighthOfIt(t *testing.T) {
	m := ptx.New(ptx.Config{Bytes: 4 << 20, Late: rand.New(rand.NewPCG(1, 21))})
	g, err := gpumem.NewGPU(m)
	require.NoError(t, err)
	b := &bench{t, t, m, g, device.Over(device.CUDA(0), g, 0)}
	b.runs(7, 100)
	require.LessOrEqual(t, b.d.Stats().PooledBytes, once+1<<19)
	require.NoError(t, b.d.Close())
}
