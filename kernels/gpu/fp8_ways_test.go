package gpu

import (
	"errors"
	"math"
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

// square is tensors of so many rows and columns.
func square(r *rand.Rand, n int, more ...device.Shape) []kerneltest.Tensor {
	in := []kerneltest.Tensor{drawn(r, device.Float32, n, n), drawn(r, device.Float32, n, n)}
	for _, s := range more {
		in = append(in, drawn(r, device.Float32, s...))
	}
	return in
}

func TestWhatStandsInTheWayOfE4M3IsCountedAndBFloat16DoesAllTheSame(t *testing.T) {
	const n = 64
	refused := errors.New("cuBLASLt says not supported")
	lacking := func(err error) *library {
		l := ptxtest.NewLibrary(t, ptx.Config{})
		l.Lacks, l.Err = func(s cuda.ProductSpec) bool { return s.In == cuda.E4M3 }, err
		return l
	}
	for name, c := range map[string]struct {
		driver cuda.Driver
		view   *kernels.View // of the first factor
		want   kernels.Way
	}{
		"nothing":         {ptxtest.NewLibrary(t, ptx.Config{}), nil, kernels.Way{By: byLibrary}},
		"an A100":         {ptxtest.NewLibrary(t, ptx.Config{Arch: 80}), nil, kernels.Way{By: byBFloat16, Why: whyNoScales}},
		"an L40":          {ptxtest.NewLibrary(t, ptx.Config{Arch: 89}), nil, kernels.Way{By: byBFloat16, Why: whyNoScales}},
		"a B200":          {ptxtest.NewLibrary(t, ptx.Config{Arch: 100}), nil, kernels.Way{By: byBFloat16, Why: whyNoScales}},
		"no library":      {bare{ptxtest.New(ptx.Config{})}, nil, kernels.Way{By: byBFloat16, Why: whyNoLibrary}},
		"an old library":  {lacking(nil), nil, kernels.Way{By: byBFloat16, Why: whyLacks, Last: cuda.ErrNoProduct.Error()}},
		"one that fails":  {lacking(errors.Join(cuda.ErrLaunch, refused)), nil, kernels.Way{By: byBFloat16, Why: whyFailed, Last: errors.Join(cuda.ErrLaunch, refused).Error()}},
		"an odd distance": {ptxtest.NewLibrary(t, ptx.Config{}), &kernels.View{Shape: device.Shape{n, n}, Strides: []int{n + 2, 1}}, kernels.Way{By: byBFloat16, Why: whyLies}},
		"an odd place":    {ptxtest.NewLibrary(t, ptx.Config{}), &kernels.View{Shape: device.Shape{n, n}, Strides: []int{n + 4, 1}, Offset: 2}, kernels.Way{By: byBFloat16, Why: whyLies}},
		"an even place":   {ptxtest.NewLibrary(t, ptx.Config{}), &kernels.View{Shape: device.Shape{n, n}, Strides: []int{n + 4, 1}, Offset: 4}, kernels.Way{By: byLibrary}},
		"every other one": {ptxtest.NewLibrary(t, ptx.Config{}), &kernels.View{Shape: device.Shape{n, n}, Strides: []int{2 * n, 2}}, kernels.Way{By: byLibrary}},
	} {
		t.Run(name, func(t *testing.T) {
			d, r := quantizing(t, c.driver), rand.New(rand.NewPCG(8, 3))
			in := square(r, n)
			var i kernels.Instr = kernels.MatMul{}
			left := in[0]
			if c.view != nil {
				in[0] = drawn(r, device.Float32, n, 2*n)
				i = kernels.Viewed{Of: i, In: []*kernels.View{c.view, nil}}
				left = drawn(r, device.Float32, n, n)
				for k := range left.V {
					left.V[k] = in[0].V[c.view.Offset+k/n*c.view.Strides[0]+k%n*c.view.Strides[1]]
				}
			}
			got, _ := multiplied(t, d, i, in)
			factors := rounded([]kerneltest.Tensor{left, in[1]}, 16)
			if c.want.By == byLibrary {
				factors = []kerneltest.Tensor{dequantized(left, false), dequantized(in[1], true)}
			}
			exact, err := kerneltest.Oracle(kernels.MatMul{}, factors, []kernels.Type{got[0].Type})
			require.NoError(t, err)
			require.Negative(t, kerneltest.Differ(i, got[0], exact[0]))
			c.want.Work, c.want.Times = workFP8, 1
			require.Contains(t, backends.Ways(d), c.want)
		})
	}
	d := quantizing(t, ptxtest.New(ptx.Config{Arch: 75}))
	_, way := multiplied(t, d, kernels.MatMul{}, square(rand.New(rand.NewPCG(8, 3)), n))
	require.Empty(t, way, "of no BF16 either")
	require.Equal(t, kernels.Way{Work: workBF16, By: byFloat32, Why: whyNoCores, Times: 1}, backends.Ways(d)[0])
}

func TestAnErrorThatBFloat16WouldMeetTooIsNotPassedOver(t *testing.T) {
	l := ptxtest.NewLibrary(t, ptx.Config{})
	l.Lacks, l.Err = func(cuda.ProductSpec) bool { return true }, device.ErrLost
	b, err := backends.For(quantizing(t, l))
	require.NoError(t, err)
	in := square(rand.New(rand.NewPCG(8, 4)), 64)
	_, err = b.Prepare(kernels.MatMul{}, []kernels.Type{in[0].Type, in[1].Type})
	require.ErrorIs(t, err, device.ErrLost)
}

func TestWithoutMemoryForALibrarysWorkspaceNothingIsQuantized(t *testing.T) {
	l := ptxtest.NewLibrary(t, ptx.Config{})
	d := quantizing(t, l)
	d.Memory().(*memory).backend.lean = true
	_, way := multiplied(t, d, kernels.MatMul{}, square(rand.New(rand.NewPCG(8, 8)), 64))
	require.Equal(t, byBFloat16+whyNoMemory, way)
	require.Empty(t, l.Ran)
}

// The estimate is of an H100. Of as many multiplications long sums are worth less.
func TestQuantizingIsWorthItsTimeInLargeProducts(t *testing.T) {
	b := &backend{cfg: Config{Precision: FP8}}
	for worth, all := range map[bool][][3]int{
		true:  {{8192, 8192, 8192}, {8192, 4096, 4096}, {16384, 3072, 768}, {4096, 4096, 4096}},
		false: {{1024, 1024, 1024}, {16384, 768, 768}, {16384, 768, 3072}, {64, 1024, 784}, {16, 65536, 8192}, {2048, 128, 65536}},
	} {
		for _, x := range all {
			require.Equal(t, worth, b.worthQuantizing(&products{m: x[0], n: x[1], k: x[2]}), "%v", x)
		}
	}
}

func TestRowsArePaddedToWhatE4M3TakesWhereProductsAreOfThat(t *testing.T) {
	const n = 64
	for _, c := range []struct {
		driver    cuda.Driver
		precision Precision
		from      int
		want      int
	}{
		{ptxtest.NewLibrary(t, ptx.Config{}), FP8, n * n * n, 16},
		{ptxtest.NewLibrary(t, ptx.Config{}), FP8, n*n*n + 1, 8},
		{ptxtest.NewLibrary(t, ptx.Config{}), FP8, 0, 8},
		{ptxtest.NewLibrary(t, ptx.Config{Arch: 80}), FP8, 1, 8},
		{bare{ptxtest.New(ptx.Config{})}, FP8, 1, 8},
		{ptxtest.NewLibrary(t, ptx.Config{}), BF16, 1, 8},
	} {
		d, err := Config{Precision: c.precision, FP8From: c.from}.On(c.driver, device.CUDA(0))
		require.NoError(t, err)
		require.Equal(t, c.want, d.Memory().(*memory).backend.PadsTo(n, n, n), "%+v", c)
		require.NoError(t, d.Close())
	}
}

func TestRowsArePaddedAlikeForAProductAndItsGradients(t *testing.T) {
	d, err := Config{Precision: FP8}.On(ptxtest.NewLibrary(t, ptx.Config{}), device.CUDA(0))
	require.NoError(t, err)
	b := d.Memory().(*memory).backend
	r, apart := rand.New(rand.NewPCG(16, 8)), 0
	check := func(m, n, k int) {
		want, worth := 8, 0
		all := [][3]int{{m, n, k}, {m, k, n}, {k, n, m}}
		for _, x := range all {
			if b.worthQuantizing(&products{m: x[0], n: x[1], k: x[2]}) {
				want, worth = 16, worth+1
			}
		}
		if worth%len(all) != 0 {
			apart++
		}
		for _, x := range all {
			require.Equal(t, want, b.PadsTo(x[0], x[1], x[2]), "%v of %v", x, all)
		}
	}
	check(16384, 3072, 768)
	check(64, 1024, 784)
	require.Equal(t, 1, apart)
	for range 200 {
		check(1<<r.IntN(16)+r.IntN(9), 1<<r.IntN(16)+r.IntN(9), 1<<r.IntN(16)+r.IntN(9))
	}
	require.NoError(t, d.Close())
}

func TestEpiloguesAreTheLibrarysInE4M3OrFollowTheProduct(t *testing.T) {
	const n = 64
	add, relu := kernels.Step{Op: kernels.Binary{Fn: kernels.Add}, Args: [2]int{0, 1}}, func(reg int) kernels.Step {
		return kernels.Step{Op: kernels.Unary{Fn: kernels.Relu}, Args: [2]int{reg}}
	}
	plain := cuda.ProductSpec{}.Epilogue
	for name, c := range map[string]struct {
		steps []kernels.Step
		bias  bool
		brief bool // the result is bfloat16
		lacks cuda.Epilogue
		want  cuda.Epilogue
	}{
		"a bias to bfloat16":        {[]kernels.Step{add}, true, true, plain, cuda.Bias},
		"a bias and a ReLU":         {[]kernels.Step{add, relu(2)}, true, true, plain, cuda.ReLUBias},
		"a ReLU":                    {[]kernels.Step{relu(0)}, false, false, plain, cuda.ReLU},
		"a bias to float32":         {[]kernels.Step{add}, true, false, plain, cuda.None},
		"a bias that it lacks":      {[]kernels.Step{add}, true, true, cuda.Bias, cuda.None},
		"a ReLU that it lacks":      {[]kernels.Step{relu(0)}, false, true, cuda.ReLU, cuda.None},
		"something else":            {[]kernels.Step{{Op: kernels.Unary{Fn: kernels.Tanh}, Args: [2]int{0}}}, false, false, plain, cuda.None},
		"both, of which none there": {[]kernels.Step{add, relu(2)}, true, true, cuda.ReLUBias, cuda.None},
	} {
		t.Run(name, func(t *testing.T) {
			l := ptxtest.NewLibrary(t, ptx.Config{})
			l.Lacks = func(s cuda.ProductSpec) bool { return c.lacks != plain && s.Epilogue == c.lacks && s.In == cuda.E4M3 }
			d, in := quantizing(t, l), square(rand.New(rand.NewPCG(8, 5)), n)
			reg := 1 + len(c.steps) - 1
			if c.bias {
				in = append(in, rounded([]kerneltest.Tensor{drawn(rand.New(rand.NewPCG(8, 6)), device.Float32, n)}, 16)...)
				reg++
			}
			i := kernels.MatMulThen{Then: kernels.Map{Shape: device.Shape{n, n}, Steps: c.steps, Outs: []kernels.Out{{Reg: reg}}}}
			var run kernels.Instr = i
			if c.brief {
				run = kernels.Narrow{Of: i, Outs: []bool{true}}
			}
			got, way := multiplied(t, d, run, in)
			require.Equal(t, byLibrary, way)
			require.Equal(t, map[cuda.Epilogue]int{c.want: 1}, l.Ran)
			factors := append([]kerneltest.Tensor{dequantized(in[0], false), dequantized(in[1], true)}, in[2:]...)
			exact, err := kerneltest.Oracle(run, factors, []kernels.Type{got[0].Type})
			require.NoError(t, err)
			require.Negative(t, kerneltest.Differ(run, got[0], exact[0]))
		})
	}
}

// A factor that is no number, or infinite, makes its row or column of the product no number, and
// nothing else.
func TestWhatIsNotFiniteStaysInItsRowsAndColumnsInE4M3(t *testing.T) {
	const n = 64
	d := quantizing(t, ptxtest.NewLibrary(t, ptx.Config{}))
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		in := square(rand.New(rand.NewPCG(8, 7)), n)
		whole, _ := multiplied(t, d, kernels.MatMul{}, in)
		in[0].V[3*n+40], in[1].V[7*n+9] = bad, bad
		got, way := multiplied(t, d, kernels.MatMul{}, in)
		require.Equal(t, byLibrary, way)
		for k, v := range got[0].V {
			if k/n == 3 || k%n == 9 {
				require.True(t, math.IsNaN(v), "%v at %d", v, k)
			} else {
				require.InDelta(t, whole[0].V[k], v, 1) // without it the scales may be others
			}
		}
	}
}
