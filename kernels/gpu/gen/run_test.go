package gen

import (
	"math/rand/v2"
	"testing"

	"github.com/weft-project/weft/kernels/kerneltest"
)

// families are the kinds of instructions that this package writes.
var families = []string{"Unary", "Binary", "Map", "Viewed", "Reduce", "MaxGrad", "SumSquares", "NonFinite", "BroadcastTo", "Reshape", "Transpose",
	"Slice", "Pad", "Concat", "ViewedMove", "Cast", "Fill"}

func TestKernelsAgreeWithTheDefinition(t *testing.T) {
	for k, family := range families {
		t.Run(family, func(t *testing.T) {
			for _, align := range []int{8, 16} {
				d, r := newRig(t, align), rand.New(rand.NewPCG(uint64(k), uint64(align)))
				for range 40 {
					i, in := kerneltest.Case(r, family)
					kerneltest.Check(t, d, i, in...)
				}
			}
		})
	}
}
