package cpu_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/kerneltest"
	"github.com/weft-project/weft/kernels"
)

// Sizes stand on both sides of a block of queries, and of the words that a row of weights takes.
func TestAttentionWithMasksSharedKeysAndDroppedWeightsAgreesWithItsDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(23, 1))
	for n, x := range []struct{ b, t, s, heads, keys, d int }{
		{1, 1, 1, 1, 1, 1}, {2, 3, 5, 6, 2, 4}, {1, 31, 31, 4, 1, 8}, {1, 33, 34, 3, 3, 7}, {1, 32, 67, 2, 1, 16}, {1, 65, 97, 6, 3, 5},
	} {
		for way := range 8 {
			of := kernels.Attention{Causal: way&1 != 0, Masked: way&2 != 0}
			if way&4 != 0 {
				of.Drop = 0.3
			}
			d := []device.Dtype{device.Float32, device.Float64}[(n+way)%2]
			t.Run(fmt.Sprint(x, of), func(t *testing.T) {
				q, k := device.Shape{x.b, x.t, x.heads, x.d}, device.Shape{x.b, x.s, x.keys, x.d}
				kerneltest.CheckAttention(t, device.Host(), r, of, d, q, k)
			})
		}
	}
}
