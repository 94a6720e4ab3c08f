package kerneltest

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/kernels"
)

func TestEveryInstructionHasACost(t *testing.T) {
	moves := []string{"BroadcastTo", "Reshape", "Transpose", "Slice", "Pad", "Concat", "Gather", "Cast", "Fill", "Im2col", "ViewedMove"}
	for n, family := range Families() {
		r := rand.New(rand.NewPCG(uint64(n), 4))
		most := kernels.Cost{}
		for range cases {
			i, in := Case(r, family)
			if out, err := i.Infer(types(in)); err == nil {
				c := kernels.CostOf(i, types(in), out)
				require.GreaterOrEqual(t, min(c.Flops, c.Bytes), 0, "%v", i)
				most = kernels.Cost{Flops: max(most.Flops, c.Flops), Bytes: max(most.Bytes, c.Bytes)}
			}
		}
		require.Equal(t, family != "Reshape", most.Bytes > 0, family)
		require.Equal(t, !slices.Contains(moves, family), most.Flops > 0, family)
	}
}
