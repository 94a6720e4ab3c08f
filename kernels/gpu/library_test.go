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
		{[]kernels.Step{add}, 2, []kerneltest.Tensor{drawn(r, device.Float32, 6, 7)}, cuda.None}, // no bias
		{[]kernels.Step{add}, 2, []kerneltest.Tensor{drawn(r, device.Float32, 6, 1)}, cuda.None}, // of rows
		{[]kernels.Step{relu(1)}, 2, []kerneltest.Tensor{bias}, cuda.None},                       // without the product
	} {
		clear(l.Ran)
		then := kernels.Map{Shape: device.Shape{6, 7}, Steps: c.steps, Outs: []kernels.Out{{Reg: c.out}}}
		kerneltest.Check(t, d, kernels.MatMulThen{Then: then}, append([]kerneltest.Tensor{a, b}, c.in...)...)
		require.Equal(t, map[cuda.Epilogue]int{c.want: 2}, l.Ran, "%v", then)
	}
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
