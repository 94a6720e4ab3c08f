package gpu

import (
	"math/rand/v2"
	"testing"

	"github.com/weft-project/weft/internal/kerneltest"
	"github.com/weft-project/weft/internal/soak"
)

func TestWhatIsNarrowIsComputedAsFloat32AndRounded(t *testing.T) {
	for name, driver := range libraries(t) {
		d := brief(t, driver)
		for _, family := range []string{
			"MatMul", "ViewedMatMul", "MatMulThen", "ViewedMatMulThen", "Map", "Viewed", "ViewedMove", "Unary", "Binary", "Reduce", "LayerNorm", "LayerNormGrad",
			"Normalize", "NormalizeGrad", "CrossEntropy", "CrossEntropyGrad", "Softmax", "SoftmaxGrad", "Conv2d", "Gather", "ScatterAdd", "MaxGrad",
		} {
			t.Run(name+" "+family, func(t *testing.T) {
				r := rand.New(rand.NewPCG(6, 7))
				for range soak.Cases(12) {
					i, in := kerneltest.Case(r, family)
					narrow, in := kerneltest.Narrowed(r, i, in)
					kerneltest.Check(t, d, narrow, in...)
				}
			})
		}
	}
}
