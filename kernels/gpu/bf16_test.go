package gpu

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/kerneltest"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/internal/testgpu"
	"github.com/weft-project/weft/kernels"
	backends "github.com/weft-project/weft/kernels/backend"
)

// brief makes a device that multiplies in bfloat16.
func brief(t testing.TB, d cuda.Driver) *device.Accelerator {
	acc, err := Config{Precision: BF16}.On(d, device.CUDA(0))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, acc.Close()) })
	return acc
}

// rounded is operands whose floats are without some bits.
func rounded(in []kerneltest.Tensor, bits int) []kerneltest.Tensor {
	out := slices.Clone(in)
	for k := range out {
		if out[k].Dtype != device.Float32 {
			continue
		}
		out[k].V = slices.Clone(out[k].V)
		for n, v := range out[k].V {
			out[k].V[n] = ptxtest.Shortened(v, bits)
		}
	}
	return out
}

var productFamilies = []string{"MatMul", "ViewedMatMul", "MatMulThen", "ViewedMatMulThen", "Conv2d", "Conv2dGradX", "Conv2dGradW"}

// bare is a driver without its library.
type bare struct{ cuda.Driver }

// tensor is a driver of a GPU that has tensor cores and no library: the one that tests run on,
// where it has them.
func tensor(t *testing.T) cuda.Driver {
	d := testgpu.Open(t, ptx.Config{Races: true})
	if d.Info().Arch >= tensorCores {
		return bare{d}
	}
	require.NoError(t, d.Close())
	return ptxtest.New(ptx.Config{Races: true})
}

// libraries are drivers with and without a library; where tests run on a real GPU, that with its
// own.
func libraries(t *testing.T) map[string]cuda.Driver {
	all := map[string]cuda.Driver{
		"kernels": tensor(t),
		"library": ptxtest.NewLibrary(t, ptx.Config{}),
	}
	if testgpu.Real() {
		all["real library"] = testgpu.Open(t, ptx.Config{})
	}
	return all
}

func TestProductsOfOperandsInBFloat16AreAsExactAsThoseOfFloat32(t *testing.T) {
	for name, driver := range libraries(t) {
		d := brief(t, driver)
		for _, family := range productFamilies {
			t.Run(name+" "+family, func(t *testing.T) {
				r := rand.New(rand.NewPCG(6, 1))
				for range soak.Cases(12) {
					i, in := kerneltest.Case(r, family)
					kerneltest.Check(t, d, i, rounded(in, 16)...)
				}
			})
		}
	}
}

func TestFactorsAreRoundedToTheNearestBFloat16(t *testing.T) {
	for name, driver := range libraries(t) {
		d, differ := brief(t, driver), 0
		for _, family := range []string{"MatMul", "ViewedMatMul", "Conv2d", "Conv2dGradX", "Conv2dGradW"} {
			r := rand.New(rand.NewPCG(6, 2))
			for range 15 {
				i, in := kerneltest.Case(r, family)
				if in[0].Dtype != device.Float32 {
					continue
				}
				types := []kernels.Type{in[0].Type, in[1].Type}
				out, err := i.Infer(types)
				require.NoError(t, err)
				got, err := kerneltest.RunOn(t, d, i, out, in)
				require.NoError(t, err)
				want, err := kerneltest.RunOn(t, d, i, out, rounded(in, 16))
				require.NoError(t, err)
				require.Equal(t, want, got, "%s: %v of %v", name, i, types)
				exact, err := kerneltest.Oracle(i, in, out)
				require.NoError(t, err)
				if kerneltest.Differ(i, got[0], exact[0]) >= 0 {
					differ++
				}
			}
		}
		require.Greater(t, differ, 10, "%s: it is not float32", name)
	}
}

func TestLargeProductsAreThoseOfManyTiles(t *testing.T) {
	d := brief(t, tensor(t))
	r := rand.New(rand.NewPCG(6, 3))
	for _, x := range [][3]int{{128, 128, 32}, {136, 200, 72}, {129, 131, 33}, {7, 260, 66}, {257, 8, 40}, {3, 5, 4200}, {40, 8, 4096}} {
		for turns := range 4 {
			if (x[2] > longSum/2 || soak.Cases(1) == 1 && x[0]*x[1] > 20000) && turns%3 != 0 {
				continue // the tiles are the same
			}
			i := kernels.MatMul{TransA: turns&1 != 0, TransB: turns&2 != 0}
			a, b := device.Shape{x[0], x[2]}, device.Shape{x[2], x[1]}
			if i.TransA {
				a[0], a[1] = a[1], a[0]
			}
			if i.TransB {
				b[0], b[1] = b[1], b[0]
			}
			kerneltest.Check(t, d, i, rounded([]kerneltest.Tensor{drawn(r, device.Float32, a...), drawn(r, device.Float32, b...)}, 16)...)
		}
	}
}

func TestTheHeadsOfAttentionAreReadWhereTheyLie(t *testing.T) {
	for name, driver := range libraries(t) {
		d := brief(t, driver)
		r := rand.New(rand.NewPCG(6, 4))
		const batch, rows, heads, width = 2, 9, 3, 8
		joined := drawn(r, device.Float32, batch, rows, 3*heads*width)
		head := func(of int) *kernels.View {
			return &kernels.View{Shape: device.Shape{batch, heads, rows, width}, Offset: of * heads * width, Strides: []int{rows * 3 * heads * width, width, 3 * heads * width, 1}}
		}
		i := kernels.Viewed{Of: kernels.MatMul{TransB: true}, In: []*kernels.View{head(0), head(1)}}
		kerneltest.Check(t, d, i, rounded([]kerneltest.Tensor{joined, joined}, 16)...)
		b, err := backends.For(d)
		require.NoError(t, err)
		x := kernels.Place{Len: joined.Bytes()}
		out := kernels.Place{Off: x.Len, Len: 4 * batch * heads * rows * rows}
		q, err := b.Assemble([]kernels.Call{{Instr: i, In: []kernels.Type{joined.Type, joined.Type}, Outs: []kernels.Place{out}, Ins: []kernels.Place{x, x}}},
			[]int{out.Off + out.Len}, []bool{true})
		require.NoError(t, err)
		require.Equal(t, 1, narrowings(q), name)
	}
}

func TestBFloat16NeedsTensorCores(t *testing.T) {
	d := brief(t, ptxtest.New(ptx.Config{Arch: 75}))
	r := rand.New(rand.NewPCG(6, 5))
	kerneltest.Check(t, d, kernels.MatMul{}, drawn(r, device.Float32, 6, 5), drawn(r, device.Float32, 5, 7))
}

func TestFloat64StaysAsItIs(t *testing.T) {
	d := brief(t, ptxtest.New(ptx.Config{}))
	r := rand.New(rand.NewPCG(6, 6))
	kerneltest.Check(t, d, kernels.MatMul{}, drawn(r, device.Float64, 6, 5), drawn(r, device.Float64, 5, 7))
}

func TestWhereTheLibraryLacksBFloat16TensorCoresMultiply(t *testing.T) {
	l := ptxtest.NewLibrary(t, ptx.Config{})
	l.Lacks = func(s cuda.ProductSpec) bool { return s.In == cuda.BF16 }
	d := brief(t, l)
	r := rand.New(rand.NewPCG(6, 7))
	for _, family := range productFamilies {
		for range 10 {
			i, in := kerneltest.Case(r, family)
			in = rounded(in, 16)
			kerneltest.Check(t, d, i, in...)
		}
	}
	clear(l.Ran)
	kerneltest.Check(t, d, kernels.MatMul{}, rounded([]kerneltest.Tensor{drawn(r, device.Float32, 6, 5), drawn(r, device.Float32, 5, 7)}, 16)...)
	require.Empty(t, l.Ran)
}

func TestTF32IsTheLibrarysAndElseFloat32(t *testing.T) {
	for name, driver := range libraries(t) {
		d, err := Config{Precision: TF32}.On(driver, device.CUDA(0))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		r := rand.New(rand.NewPCG(6, 8))
		for range 30 {
			i, in := kerneltest.Case(r, "MatMul")
			kerneltest.Check(t, d, i, rounded(in, 13)...)
		}
		a, b := drawn(r, device.Float32, 20, 30), drawn(r, device.Float32, 30, 20)
		out := []kernels.Type{{Dtype: device.Float32, Shape: device.Shape{20, 20}}}
		got, err := kerneltest.RunOn(t, d, kernels.MatMul{}, out, []kerneltest.Tensor{a, b})
		require.NoError(t, err)
		exact, err := kerneltest.Oracle(kernels.MatMul{}, []kerneltest.Tensor{a, b}, out)
		require.NoError(t, err)
		differs := kerneltest.Differ(kernels.MatMul{}, got[0], exact[0]) >= 0
		require.Equal(t, slices.ContainsFunc(backends.Ways(d), func(w kernels.Way) bool { return w.By == byLibrary }), differs, "%s: it is not float32", name)
	}
}
