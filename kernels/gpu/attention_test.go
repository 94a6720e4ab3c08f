package gpu

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/kerneltest"
)

// heads are the extents of an attention.
type heads struct{ b, t, s, h, d int }

// attended draws operands of attention and of its gradient. The results that the gradient reads are the host's.
func (x heads) attended(t *testing.T, r *rand.Rand, d device.Dtype, causal bool) (forward, backward []kerneltest.Tensor) {
	forward = []kerneltest.Tensor{drawn(r, d, x.b, x.t, x.h, x.d), drawn(r, d, x.b, x.s, x.h, x.d), drawn(r, d, x.b, x.s, x.h, x.d)}
	made := results(t, device.Host(), kernels.Attention{Causal: causal}, forward...)
	return forward, append(append(forward[:3:3], made...), drawn(r, d, x.b, x.t, x.h, x.d))
}

// check compares attention and its gradient with their definitions.
func (x heads) check(t *testing.T, g device.Device, r *rand.Rand, d device.Dtype, causal bool) {
	forward, backward := x.attended(t, r, d, causal)
	kerneltest.Check(t, g, kernels.Attention{Causal: causal}, forward...)
	kerneltest.Check(t, g, kernels.AttentionGrad{Causal: causal}, backward...)
	if x.t == x.s {
		kerneltest.Check(t, g, kernels.AttentionGrad{Causal: causal, Joined: true}, backward...)
	}
}

func TestAttentionAgreesWithItsDefinitionAcrossTilesAndSlices(t *testing.T) {
	eachFloat(t, func(t *testing.T, r *rand.Rand, d device.Dtype) {
		g := machine(t)
		for _, x := range []heads{
			{1, 65, 65, 1, 8}, {1, 3, 70, 2, 5}, {1, 70, 70, 1, 33}, {2, 1, 1, 1, 65}, {1, 5, 7, 1, 130}, {1, 66, 130, 1, 4},
			{0, 3, 3, 1, 4}, {1, 0, 3, 1, 4}, {1, 3, 3, 0, 4}, {1, 2, 3, 1, 0},
		} {
			for _, causal := range []bool{false, true} {
				t.Run(fmt.Sprint(x, causal), func(t *testing.T) { x.check(t, g, r, d, causal) })
			}
		}
		t.Run("no keys", func(t *testing.T) { heads{1, 3, 0, 1, 4}.check(t, g, r, d, false) })
	})
}

func TestAttentionReadsWhatAProductOfTokensMakesWithoutACopy(t *testing.T) {
	eachFloat(t, func(t *testing.T, r *rand.Rand, d device.Dtype) {
		const b, n, h, e = 2, 5, 3, 4
		joined := drawn(r, d, b, n, 3*h*e)
		var views []*kernels.View
		for k := range 3 {
			views = append(views, &kernels.View{Shape: device.Shape{b, n, h, e}, Offset: k * h * e, Strides: []int{3 * n * h * e, 3 * h * e, e, 1}})
		}
		i := kernels.Viewed{Of: kernels.Attention{Causal: true}, In: views}
		g := machine(t)
		kerneltest.Check(t, g, i, joined, joined, joined)
		c, err := g.Memory().(*memory).backend.lower(i, []kernels.Type{joined.Type, joined.Type, joined.Type}, nil)
		require.NoError(t, err)
		require.Len(t, c.launches, 1)
		require.Zero(t, c.scratch)
	})
}
