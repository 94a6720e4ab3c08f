package gpu

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/kerneltest"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
	"github.com/weft-project/weft/kernels"
	backends "github.com/weft-project/weft/kernels/backend"
)

type library = ptxtest.Library

func TestProductsGoToTheDriversLibrary(t *testing.T) {
	for name, driver := range libraries(t) {
		d, made, cases := on(t, driver), map[string]int64{}, 40
		if name == "kernels" {
			cases = 3
		}
		for _, family := range productFamilies {
			r := rand.New(rand.NewPCG(5, 5))
			for range cases {
				i, in := kerneltest.Case(r, family)
				kerneltest.Check(t, d, i, in...)
			}
		}
		for _, w := range backends.Ways(d) {
			t.Logf("%s: %+v", name, w)
			made[w.By] += w.Times
		}
		switch {
		case name == "kernels":
			require.Zero(t, made[byLibrary])
		case name == "library":
			require.Greater(t, made[byLibrary], int64(200))
		case made[byLibrary] == 0: // of a real GPU
			_, err := driver.(cuda.Multiplier).Product(cuda.ProductSpec{M: 8, N: 8, K: 8})
			require.ErrorIs(t, err, cuda.ErrNoLibrary, "there is one, and no product went there")
			t.Log(err)
		}
	}
}

func TestABiasAndAReLUAreTheLibrarysWhereNothingElseIs(t *testing.T) {
	l := ptxtest.NewLibrary(t, ptx.Config{})
	d := on(t, l)
	r := rand.New(rand.NewPCG(5, 6))
	add, relu := kernels.Step{Op: kernels.Binary{Fn: kernels.Add}, Args: [2]int{0, 1}}, func(reg int) kernels.Step {
		return kernels.Step{Op: kernels.Unary{Fn: kernels.Relu}, Args: [2]int{reg}}
	}
	swapped := add
	swapped.Args = [2]int{1, 0}
	a, b, bias := drawn(r, device.Float32, 6, 5), drawn(r, device.Float32, 5, 7), drawn(r, device.Float32, 7)
	for _, c := range []struct {
		steps []kernels.Step
		out   int
		in    []kerneltest.Tensor
		want  cuda.Epilogue
	}{
		{[]kernels.Step{add}, 2, []kerneltest.Tensor{bias}, cuda.Bias},
		{[]kernels.Step{swapped, relu(2)}, 3, []kerneltest.Tensor{bias}, cuda.ReLUBias},
		{[]kernels.Step{relu(0)}, 1, nil, cuda.ReLU},
		{[]kernels.Step{add, relu(2)}, 2, []kerneltest.Tensor{bias}, cuda.None},                  // the result is before the ReLU
		{[]kernels.Step{add, relu(0)}, 3, []kerneltest.Tensor{bias}, cuda.None},                  // the ReLU is of the product
		{[]kernels.Step{relu(0), relu(1)}, 2, nil, cuda.None},                                    // two
		{[]kernels.Step{add}, 2, []kerneltest.Tensor{drawn(r, device.Float32, 6, 1)}, cuda.None}, // of rows
		{[]kernels.Step{relu(1)}, 2, []kerneltest.Tensor{bias}, cuda.None},                       // without the product
	} {
		clear(l.Ran)
		then := kernels.Map{Shape: device.Shape{6, 7}, Steps: c.steps, Outs: []kernels.Out{{Reg: c.out}}}
		kerneltest.Check(t, d, kernels.MatMulThen{Then: then}, append([]kerneltest.Tensor{a, b}, c.in...)...)
		require.Equal(t, map[cuda.Epilogue]int{c.want: 2}, l.Ran, "%v", then)
	}
	require.Zero(t, l.Added)
}

func TestAProductIsAddedToASumByTheLibraryWhereNothingElseIsDone(t *testing.T) {
	l := ptxtest.NewLibrary(t, ptx.Config{})
	d := on(t, l)
	r := rand.New(rand.NewPCG(5, 8))
	step := func(x, y int) kernels.Step {
		return kernels.Step{Op: kernels.Binary{Fn: kernels.Add}, Args: [2]int{x, y}}
	}
	for _, c := range []struct {
		a, b, sum, out []int
		steps          []kernels.Step
		calls          int // of the library that add, for each time
	}{
		{[]int{6, 5}, []int{5, 7}, []int{6, 7}, []int{6, 7}, []kernels.Step{step(0, 1)}, 1},
		{[]int{6, 5}, []int{5, 7}, []int{6, 7}, []int{6, 7}, []kernels.Step{step(1, 0)}, 1},
		{[]int{2, 6, 5}, []int{5, 7}, []int{2, 6, 7}, []int{2, 6, 7}, []kernels.Step{step(0, 1)}, 1},
		{[]int{2, 1, 6, 5}, []int{3, 5, 7}, []int{2, 3, 6, 7}, []int{2, 3, 6, 7}, []kernels.Step{step(0, 1)}, 2},
		{[]int{6, 5}, []int{5, 7}, []int{6, 7}, []int{6, 7}, []kernels.Step{step(0, 0)}, 0},             // twice the product
		{[]int{6, 5}, []int{5, 7}, []int{6, 7}, []int{6, 7}, []kernels.Step{step(1, 1)}, 0},             // without it
		{[]int{6, 5}, []int{5, 7}, []int{6, 7}, []int{6, 7}, []kernels.Step{step(0, 1), step(2, 0)}, 0}, // and once more
		{[]int{2, 6, 5}, []int{5, 7}, []int{6, 7}, []int{2, 6, 7}, []kernels.Step{step(0, 1)}, 0},       // the same for all
		{[]int{6, 0}, []int{0, 7}, []int{6, 7}, []int{6, 7}, []kernels.Step{step(0, 1)}, 0},             // no product
	} {
		for _, dtype := range []device.Dtype{device.Float32, device.Float64} {
			l.Added = 0
			then := kernels.Map{Shape: c.out, Steps: c.steps, Outs: []kernels.Out{{Reg: 1 + len(c.steps)}}}
			i, in := kernels.MatMulThen{Then: then}, []kerneltest.Tensor{drawn(r, dtype, c.a...), drawn(r, dtype, c.b...), drawn(r, dtype, c.sum...)}
			kerneltest.Check(t, d, i, in...)
			require.Equal(t, 2*c.calls, l.Added, "%v", i)
		}
	}
}

func TestASumOfAProductAndABiasIsNotTheLibrarysWhereItIsFolded(t *testing.T) {
	l := ptxtest.NewLibrary(t, ptx.Config{})
	d, r := on(t, l), rand.New(rand.NewPCG(5, 9))
	for _, axis := range []int{0, 1} {
		then := kernels.Map{
			Shape: device.Shape{6, 7}, Steps: []kernels.Step{{Op: kernels.Binary{Fn: kernels.Add}, Args: [2]int{0, 1}}},
			Outs: []kernels.Out{{Reg: 2, Fold: &kernels.Reduce{Axes: []int{axis}}}},
		}
		in := []kerneltest.Tensor{drawn(r, device.Float32, 6, 5), drawn(r, device.Float32, 5, 7), drawn(r, device.Float32, 7)}
		if axis == 1 {
			then.Shape, in[1], in[2] = device.Shape{6, 6}, drawn(r, device.Float32, 5, 6), drawn(r, device.Float32, 6)
		}
		kerneltest.Check(t, d, kernels.MatMulThen{Then: then}, in...)
	}
	require.Zero(t, l.Added)
}

func TestAProductThatTheLibraryLacksIsAKernels(t *testing.T) {
	l := ptxtest.NewLibrary(t, ptx.Config{})
	l.Lacks = func(s cuda.ProductSpec) bool { return s.Epilogue != cuda.None || s.M > 4 }
	d := on(t, l)
	r := rand.New(rand.NewPCG(5, 7))
	bias := drawn(r, device.Float32, 7)
	then := kernels.Map{Shape: device.Shape{6, 7}, Steps: []kernels.Step{{Op: kernels.Binary{Fn: kernels.Add}, Args: [2]int{0, 1}}}, Outs: []kernels.Out{{Reg: 2}}}
	kerneltest.Check(t, d, kernels.MatMulThen{Then: then}, drawn(r, device.Float32, 6, 5), drawn(r, device.Float32, 5, 7), bias)
	kerneltest.Check(t, d, kernels.MatMul{}, drawn(r, device.Float32, 6, 5), drawn(r, device.Float32, 5, 7))
	require.Empty(t, l.Ran)
}
