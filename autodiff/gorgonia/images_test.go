package gorgonia

import (
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// instructionsOf are those of the graph that a function builds.
func instructionsOf(t *testing.T, inputs, outputs []*gorgonia.Node) (is []kernels.Instr) {
	t.Helper()
	im, err := read(inputs, outputs)
	require.NoError(t, err)
	first := len(im.in) + len(im.leaves) + im.keys
	live := map[int]bool{}
	for _, o := range im.outs {
		live[o] = true
	}
	dead := kernels.Fill{C: 4711}
	for k := len(im.steps) - 1; k >= 0; k-- {
		s := &im.steps[k]
		if !live[first+k] { // it only stands for its value
			s.build = func(g *autodiff.Graph, _ []node) node { return g.Apply(kernels.Fill{Type: s.out, C: dead.C}) }
			continue
		}
		for _, a := range s.args {
			live[a] = true
		}
	}
	_, err = autodiff.DefineWith("f", autodiff.Definition{Inputs: im.in, Held: im.leaves, Keys: im.keys, Body: func(g *autodiff.Graph, in []node) ([]node, error) {
		outs, err := im.build(g, in)
		for _, n := range g.ExprGraph().AllNodes() {
			if op, ok := n.Op().(*autodiff.Op); ok {
				if fill, ok := op.Instr.(kernels.Fill); !ok || fill.C != dead.C {
					is = append(is, op.Instr)
				}
			}
		}
		return outs, err
	}})
	require.NoError(t, err)
	return is
}

func TestAConvolutionOfGorgoniasIsOneInstruction(t *testing.T) {
	g := gorgonia.NewGraph()
	x, w := matrixOf(g, "x", 2, 3, 8, 6), matrixOf(g, "w", 4, 3, 3, 2)
	y := must(gorgonia.Conv2d(x, w, tensor.Shape{3, 2}, []int{1, 0}, []int{2, 1}, []int{1, 2}))
	want := kernels.Conv2d{Window: kernels.Window{Kernel: [2]int{3, 2}, Stride: [2]int{2, 1}, Before: [2]int{1, 0}, After: [2]int{1, 0}, Dilation: [2]int{1, 2}}}
	require.Equal(t, []kernels.Instr{want}, instructionsOf(t, []node{x, w}, []node{y}))

	// Where a part of it is an input, or is wanted as well, the parts are what they are.
	product := childrenOf(childrenOf(y)[0])[0]
	patches, flat := childrenOf(product)[0], childrenOf(product)[1]
	for _, in := range [][]node{{patches, w}, {x, flat}, {x, w, flat}, {product, x}, {childrenOf(patches)[0], flat}} {
		for _, i := range instructionsOf(t, in, []node{y}) {
			require.IsNotType(t, want, i)
		}
	}
	require.Contains(t, instructionsOf(t, []node{x, w}, []node{y, product}), kernels.Instr(want))
}

func TestOtherProductsOfColumnsAreNoConvolutions(t *testing.T) {
	g := gorgonia.NewGraph()
	x := matrixOf(g, "x", 2, 1, 4, 4)
	two := tensor.Shape{2, 2}
	columns := must(gorgonia.Im2Col(x, two, tensor.Shape{0, 0}, tensor.Shape{2, 2}, tensor.Shape{1, 1}))
	patches := must(gorgonia.Reshape(columns, tensor.Shape{8, 4}))
	w := matrixOf(g, "w", 3, 1, 2, 2)
	flat := must(gorgonia.Reshape(w, tensor.Shape{3, 4}))
	product := must(gorgonia.BatchedMatMul(patches, flat, false, true))
	for _, y := range []*gorgonia.Node{
		must(gorgonia.Transpose(must(gorgonia.Reshape(product, tensor.Shape{2, 2, 2, 3})), 0, 3, 1, 2)),
		must(gorgonia.Transpose(must(gorgonia.Reshape(product, tensor.Shape{2, 2, 2, 3})), 3, 0, 1, 2)),
		must(gorgonia.Transpose(must(gorgonia.Reshape(product, tensor.Shape{2, 4, 1, 3})), 0, 3, 1, 2)),
	} {
		for _, i := range instructionsOf(t, []node{x, w}, []node{y}) {
			require.IsNotType(t, kernels.Conv2d{}, i)
		}
	}
}

func TestDropoutOfGorgoniasDrawsAnewAtEveryCallAndTheSameInItsBackward(t *testing.T) {
	g := gorgonia.NewGraph()
	x := matrixOf(g, "x", 40, 50)
	same := must(gorgonia.Abs(x)) // two dropouts of one node would be one op: Gorgonia's hash leaves the probability out
	f, err := From([]node{x}, []node{must(gorgonia.Dropout(x, 0.25)), must(gorgonia.Dropout(same, 0.5))})
	require.NoError(t, err)
	seen := map[string]bool{}
	for range 3 {
		in := autodiff.Ones(device.Float64, 40, 50).RequireGrad()
		out := f.CallAll(in)
		for k, scale := range []float64{4.0 / 3, 2} {
			y := numbers(t, out[k])
			kept := 0
			for _, v := range y {
				require.True(t, v == 0 || v == scale)
				if v != 0 {
					kept++
				}
			}
			require.InDelta(t, 2000/scale, kept, 120)
			grads, err := autodiff.BackwardWith(autodiff.Options{RetainGraph: true}, autodiff.Sum(out[k]))
			require.NoError(t, err)
			require.Equal(t, y, numbers(t, grads.Of(in)))
			seen[string(device.Bytes(y))] = true
		}
	}
	require.Len(t, seen, 6)
}

func TestDropoutOfGorgoniasIsTheSameInACheckpointsSecondRun(t *testing.T) {
	g := gorgonia.NewGraph()
	x := matrixOf(g, "x", 10, 10)
	f, err := From([]node{x}, []node{must(gorgonia.Square(must(gorgonia.Dropout(x, 0.5))))})
	require.NoError(t, err)
	in := autodiff.Ones(device.Float64, 10, 10).RequireGrad()
	y := autodiff.Checkpoint(func(in ...*autodiff.Tensor) []*autodiff.Tensor { return []*autodiff.Tensor{f.Call(in...)} }, in)[0]
	grads, err := autodiff.Backward(autodiff.Sum(y))
	require.NoError(t, err)
	want := numbers(t, y) // 4 where an element is kept, and so is the square's gradient 2·x·2·2, twice that
	for i := range want {
		want[i] *= 2
	}
	require.Equal(t, want, numbers(t, grads.Of(in)))
}

func TestDropoutThatIsSwitchedOffIsNothing(t *testing.T) {
	g := gorgonia.NewGraph()
	x := matrixOf(g, "x", 4, 5)
	y := must(gorgonia.Dropout(x, 0.25))
	require.NoError(t, y.Op().(interface{ SetTraining(bool) error }).SetTraining(false))
	for _, out := range []*gorgonia.Node{y, must(gorgonia.Dropout(must(gorgonia.Abs(x)), 0))} {
		f, err := From([]node{x}, []node{must(gorgonia.Neg(out))})
		require.NoError(t, err)
		require.Equal(t, []float64{-1, -1}, numbers(t, f.Call(autodiff.Ones(device.Float64, 4, 5)))[:2])
	}
}

func TestBatchNormAfterTrainingUsesTheStatisticsOfTheOp(t *testing.T) {
	g := gorgonia.NewGraph()
	x, scale, bias := matrixOf(g, "x", 2, 2, 1, 2), matrixOf(g, "scale", 1, 2, 1, 1), matrixOf(g, "bias", 1, 2, 1, 1)
	y, _, _, op, err := gorgonia.BatchNorm(x, scale, bias, 0.1, 0)
	require.NoError(t, err)
	require.NoError(t, op.SetTraining(false))
	vec := func(v ...float64) tensor.Tensor { return tensor.New(tensor.WithBacking(v)) }
	require.NoError(t, op.SetStats(vec(1, 2), vec(4, 9)))
	f, err := From([]node{x, scale, bias}, []node{y})
	require.NoError(t, err)
	require.NoError(t, op.SetStats(vec(0, 0), vec(1, 1)), "f has a copy")
	in := []*autodiff.Tensor{autodiff.New([]float64{1, 3, 2, 5, 5, 7, 8, 11}, 2, 2, 1, 2), autodiff.New([]float64{1, 10}, 1, 2, 1, 1), autodiff.New([]float64{0, 1}, 1, 2, 1, 1)}
	require.InDeltaSlice(t, []float64{0, 1, 1, 11, 2, 3, 21, 31}, numbers(t, f.Call(in...)), 1e-12)
}
