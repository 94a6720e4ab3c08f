package gpumem_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/gpumem"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
)

// stingy is a machine that counts the host memory which is pinned for it.
type stingy struct {
	*ptx.Machine
	pinned int
}

func (s *stingy) Pin(n int) ([]byte, error) {
	s.pinned += n
	return s.Machine.Pin(n)
}

func TestACopyBetweenTwoGPUsGoesStraightWhereTheyReachOneAnother(t *testing.T) {
	leak.Check(t)
	for _, reach := range []bool{true, false} {
		for seed := range uint64(8) {
			host := new(ptx.Host)
			config := func(i uint64) (c ptx.Config) {
				c.Host, c.Peers = host, reach
				if seed > 0 {
					c.Late = rand.New(rand.NewPCG(seed, i))
				}
				return c
			}
			m := &stingy{Machine: ptx.New(config(0))}
			g, err := gpumem.NewGPU(m)
			require.NoError(t, err)
			from, to := device.Over(device.CUDA(0), g, 0), ptxtest.GPU(t, device.CUDA(1), config(1))
			for _, n := range []int{0, 1, 5 << 20} {
				src, err := from.Alloc(n)
				require.NoError(t, err)
				dst, err := to.Alloc(n)
				require.NoError(t, err)
				want, junk := bytes.Repeat([]byte{1, 2, 3}, n/3+1)[:n], bytes.Repeat([]byte{9}, n)
				require.NoError(t, to.Upload(dst, 0, junk), "which may be under way still")
				require.NoError(t, from.Upload(src, 0, want))
				before := m.pinned
				require.NoError(t, device.Copy(dst, src))
				if reach || n == 1 { // the first time, staging is made where there is some
					require.Equal(t, reach, m.pinned-before < 1<<20, "%d bytes were pinned", m.pinned-before)
				}
				require.NoError(t, from.Upload(src, 0, junk))
				got := make([]byte, n)
				require.NoError(t, to.Download(got, dst, 0))
				require.Equal(t, want, got)
				require.NoError(t, src.Release())
				require.ErrorIs(t, device.Copy(dst, src), device.ErrReleased)
				require.NoError(t, dst.Release())
			}
			require.NoError(t, from.Close())
		}
	}
}

func TestACopyToAnotherGPUTellsWhatWentWrongOnItsSource(t *testing.T) {
	host := new(ptx.Host)
	var at [2]*device.Accelerator
	var buf [2]*device.Buffer
	for i := range at {
		at[i] = ptxtest.GPU(t, device.CUDA(i), ptx.Config{Host: host, Peers: true})
		var err error
		buf[i], err = at[i].Alloc(64)
		require.NoError(t, err)
	}
	spoil := func(i int) {
		g := at[i].Memory().(*gpumem.GPU)
		require.NoError(t, g.Upload(g.FaultAddr(), []byte{1}))
	}
	var fault *gpumem.FaultError
	spoil(1)
	require.NoError(t, device.Copy(buf[1], buf[0]))
	require.ErrorAs(t, at[1].Check(), &fault, "the target's stays to be told")
	spoil(0)
	err := device.Copy(buf[1], buf[0])
	require.ErrorAs(t, err, &fault)
	require.ErrorContains(t, err, "cuda:0: copy")
	require.NoError(t, device.Copy(buf[1], buf[0]))
	require.NoError(t, buf[0].Release())
	require.NoError(t, buf[1].Release())
}

func TestAGPUDoesNotKeepThoseThatItHasReached(t *testing.T) {
	host := new(ptx.Host)
	from := ptxtest.GPU(t, device.CUDA(0), ptx.Config{Host: host, Peers: true})
	src, err := from.Alloc(64)
	require.NoError(t, err)
	visit := func() weak.Pointer[ptx.Machine] {
		m := ptx.New(ptx.Config{Host: host, Peers: true})
		g, err := gpumem.NewGPU(m)
		require.NoError(t, err)
		to := device.Over(device.CUDA(1), g, 0)
		dst, err := to.Alloc(64)
		require.NoError(t, err)
		for range 2 {
			require.NoError(t, device.Copy(dst, src))
		}
		require.NoError(t, errors.Join(dst.Release(), to.Close()))
		return weak.Make(m)
	}
	for range 3 {
		gone := visit()
		for range 20 {
			if gone.Value() == nil {
				break
			}
			runtime.GC()
		}
		require.Nil(t, gone.Value())
	}
	require.LessOrEqual(t, from.Memory().(*gpumem.GPU).Neighbors(), 1, "those that are gone are forgotten when there is another")
	require.NoError(t, src.Release())
}
