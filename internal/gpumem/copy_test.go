package gpumem_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
)

func TestACopyBetweenTwoGPUsNeedsLittleOfTheHostAndIsWhole(t *testing.T) {
	leak.Check(t)
	for name, late := range map[string]bool{"at once": false, "late": true} {
		t.Run(name, func(t *testing.T) {
			var c [2]ptx.Config
			for i := range c {
				if late {
					c[i].Late = rand.New(rand.NewPCG(uint64(i), 1))
				}
			}
			from, to := ptxtest.GPU(t, device.CUDA(0), c[0]), ptxtest.GPU(t, device.CUDA(1), c[1])
			for _, n := range []int{0, 1, 4 << 20, 4<<20 + 1, 13 << 20} {
				src, err := from.Alloc(n)
				require.NoError(t, err)
				dst, err := to.Alloc(n)
				require.NoError(t, err)
				want := make([]byte, n)
				for i := range want {
					want[i] = byte(i * i >> 7)
				}
				require.NoError(t, from.Upload(src, 0, want))
				require.NoError(t, device.Copy(dst, src))
				require.NoError(t, src.Release())
				got := make([]byte, n)
				require.NoError(t, to.Download(got, dst, 0))
				require.Equal(t, want, got)
				require.ErrorIs(t, device.Copy(dst, src), device.ErrReleased)
				require.NoError(t, dst.Release())
			}
		})
	}
}
