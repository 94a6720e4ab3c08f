package gpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/kerneltest"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/testgpu"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/gpu/internal/cu"
)

// machine is a GPU as the interpreter has it, which finds races between blocks.
func machine(t *testing.T) *device.Accelerator {
	return machineOf(t, testgpu.Open(t, ptx.Config{Races: true}))
}

func machineOf(t *testing.T, driver cuda.Driver) *device.Accelerator {
	d, err := On(driver, device.CUDA(0))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// cramped is a driver whose blocks have little shared memory.
type cramped struct {
	cuda.Driver
	shared int
}

func (c cramped) Info() cuda.Info {
	i := c.Driver.Info()
	i.Shared = c.shared
	return i
}

// drawn is a tensor of a few units.
func drawn(r *rand.Rand, d device.Dtype, s ...int) kerneltest.Tensor {
	v := make([]float64, max(1, device.Shape(s).Elems()))
	for k := range v {
		v[k] = r.NormFloat64() * 2
	}
	return kerneltest.New(d, s, v...)
}

func drawnIDs(r *rand.Rand, d device.Dtype, n int, s ...int) kerneltest.Tensor {
	v := make([]float64, max(1, device.Shape(s).Elems()))
	for k := range v {
		v[k] = float64(r.IntN(n))
	}
	return kerneltest.New(d, s, v...)
}

// eachFloat runs a test for each floating-point dtype.
func eachFloat(t *testing.T, fn func(t *testing.T, r *rand.Rand, d device.Dtype)) {
	for _, d := range []device.Dtype{device.Float32, device.Float64} {
		t.Run(d.String(), func(t *testing.T) { fn(t, rand.New(rand.NewPCG(1, uint64(d))), d) })
	}
}

// results runs an instruction.
func results(t *testing.T, on device.Device, i kernels.Instr, in ...kerneltest.Tensor) []kerneltest.Tensor {
	types := make([]kernels.Type, len(in))
	for k, x := range in {
		types[k] = x.Type
	}
	out, err := i.Infer(types)
	require.NoError(t, err)
	got, err := kerneltest.RunOn(t, on, i, out, in)
	require.NoError(t, err)
	return got
}

// checkRows checks what works along rows, on an operand of n rows of extent c.
func checkRows(t *testing.T, g device.Device, r *rand.Rand, d device.Dtype, n, c int) {
	x, gy, gamma, beta := drawn(r, d, n, c), drawn(r, d, n, c), drawn(r, d, c), drawn(r, d, c)
	for _, log := range []bool{false, true} {
		kerneltest.Check(t, g, kernels.Softmax{Axis: 1, Log: log}, x)
		if n*c > 0 {
			y := results(t, device.Host(), kernels.Softmax{Axis: 1, Log: log}, x)[0]
			kerneltest.Check(t, g, kernels.SoftmaxGrad{Axis: 1, Log: log}, y, gy)
		}
	}
	kerneltest.Check(t, g, kernels.Normalize{Eps: 1e-5}, x)
	kerneltest.Check(t, g, kernels.NormalizeGrad{Eps: 1e-5}, x, gy)
	kerneltest.Check(t, g, kernels.LayerNorm{Eps: 1e-5}, x, gamma, beta)
	kerneltest.Check(t, g, kernels.LayerNormGrad{Eps: 1e-5}, x, gamma, gy)
	if n > 0 && c > 0 {
		labels := drawnIDs(r, device.Int64, c, n)
		kerneltest.Check(t, g, kernels.CrossEntropy{}, x, labels)
		kerneltest.Check(t, g, kernels.CrossEntropyGrad{}, x, labels, drawn(r, d))
	}
}

func TestRowKernelsAgreeWithTheirDefinitionsAtEveryWidth(t *testing.T) {
	eachFloat(t, func(t *testing.T, r *rand.Rand, d device.Dtype) {
		g := machine(t)
		for _, s := range [][2]int{{0, 3}, {3, 0}, {1, 1}, {5, 2}, {3, 4}, {9, 31}, {33, 8}, {2, 32}, {3, 33}, {140, 4}, {2, 127}, {1, 259}, {1, 257 * 16 / d.Size()}} {
			t.Run(fmt.Sprint(s), func(t *testing.T) { checkRows(t, g, r, d, s[0], s[1]) })
		}
	})
}

func TestRowKernelsNeedNoSharedMemoryForTheRows(t *testing.T) {
	eachFloat(t, func(t *testing.T, r *rand.Rand, d device.Dtype) {
		g := machineOf(t, cramped{testgpu.Open(t, ptx.Config{Races: true}), maxStatic})
		for _, s := range [][2]int{{5, 2}, {9, 31}, {40, 32}, {3, 132}, {1, 257}} {
			t.Run(fmt.Sprint(s), func(t *testing.T) { checkRows(t, g, r, d, s[0], s[1]) })
		}
	})
}

// ofShared are the bytes of shared memory that each kernel of a module declares.
func ofShared(t *testing.T, module string) map[string]int {
	all := map[string]int{}
	for _, entry := range strings.Split(string(cu.Module(module)), ".entry ")[1:] {
		name, _, _ := strings.Cut(entry, "(")
		all[name] = 0
		for _, v := range regexp.MustCompile(`(?m)^\s*\.shared .*\[(\d+)\];$`).FindAllStringSubmatch(entry, -1) {
			n, err := strconv.Atoi(v[1])
			require.NoError(t, err)
			all[name] += (n + 15) &^ 15
		}
	}
	return all
}

func TestKernelsOfRowsDeclareNoMoreSharedMemoryThanIsLeftForThem(t *testing.T) {
	for _, module := range []string{"norm", "norm_bf16", "softmax", "entropy_bf16"} {
		most := 0
		for name, n := range ofShared(t, module) {
			require.LessOrEqual(t, n, maxStatic, name)
			most = max(most, n)
		}
		require.Positive(t, most, "%s declares some", module)
	}
	require.Greater(t, ofShared(t, "rows")["sort_keys"], maxStatic, "which has no plan")
}

func TestSoftmaxAgreesAlongAxesThatAreNotTheLast(t *testing.T) {
	eachFloat(t, func(t *testing.T, r *rand.Rand, d device.Dtype) {
		g := machine(t)
		for _, s := range [][]int{{2, 3, 2}, {1, 40, 3}, {3, 17, 33}, {2, 1, 300}, {4, 9, 31}, {1, 300, 2}} {
			x, gy := drawn(r, d, s...), drawn(r, d, s...)
			for _, log := range []bool{false, true} {
				kerneltest.Check(t, g, kernels.Softmax{Axis: 1, Log: log}, x)
				kerneltest.Check(t, g, kernels.Softmax{Axis: 0, Log: log}, x)
				y := results(t, device.Host(), kernels.Softmax{Axis: 1, Log: log}, x)[0]
				kerneltest.Check(t, g, kernels.SoftmaxGrad{Axis: 1, Log: log}, y, gy)
			}
		}
	})
}

func TestSoftmaxTakesWhatIsMaskedAndWhatIsNoNumberAsTheHostDoes(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	eachFloat(t, func(t *testing.T, _ *rand.Rand, d device.Dtype) {
		for _, g := range []device.Device{machine(t), machineOf(t, cramped{testgpu.Open(t, ptx.Config{}), maxStatic})} {
			for _, c := range []struct{ of, want []float64 }{
				{[]float64{-inf, 0, -inf, 0}, []float64{0, 0.5, 0, 0.5}}, {[]float64{-inf, -inf, -inf, 3}, []float64{0, 0, 0, 1}},
				{[]float64{-inf, -inf, -inf, -inf}, []float64{nan, nan, nan, nan}}, {[]float64{1, inf, 1, 1}, []float64{nan, nan, nan, nan}},
				{[]float64{1, nan, 1, -inf}, []float64{nan, nan, nan, nan}}, {[]float64{nan, nan, nan, nan}, []float64{nan, nan, nan, nan}},
				{[]float64{1e30, 1e30, -1e30, 0}, []float64{0.5, 0.5, 0, 0}},
			} {
				for _, times := range []int{1, 9, 75} { // a lane alone, some lanes, some times
					var of, want []float64
					for range times {
						of = append(of, c.of...)
						for _, v := range c.want {
							want = append(want, v/float64(times))
						}
					}
					x, y := kerneltest.New(d, device.Shape{1, 4 * times}, of...), kerneltest.New(d, device.Shape{1, 4 * times}, want...)
					for axis, x := range []kerneltest.Tensor{{Type: kernels.Type{Dtype: d, Shape: device.Shape{4 * times, 1}}, V: x.V}, x} {
						got := results(t, g, kernels.Softmax{Axis: axis}, x)[0]
						require.Negative(t, kerneltest.Differ(kernels.Softmax{}, got, y), "%v: %v", of, got.V)
					}
					labels := kerneltest.New(device.Int32, device.Shape{1}, 3)
					host := results(t, device.Host(), kernels.CrossEntropy{}, x, labels)[0]
					require.Negative(t, kerneltest.Differ(kernels.CrossEntropy{}, results(t, g, kernels.CrossEntropy{}, x, labels)[0], host), "%v", of)
				}
			}
		}
	})
}

// The definition is that of rows as long as there are classes.
func TestCrossEntropyReadsNothingBeyondTheClassesWhereverTheyEnd(t *testing.T) {
	eachFloat(t, func(t *testing.T, r *rand.Rand, d device.Dtype) {
		roomy, bare := machine(t), machineOf(t, cramped{testgpu.Open(t, ptx.Config{Races: true}), maxStatic})
		for _, classes := range []int{1, 2, 3, 4, 5, 7, 8, 31, 33, 63, 126, 255, 1021, 1023} {
			for _, width := range []int{classes, (classes + 3) &^ 3, (classes+3)&^3 + 4, classes + 1} {
				x, labels, gy := drawn(r, d, 3, width), drawnIDs(r, device.Int64, classes, 3), drawn(r, d)
				tight := kerneltest.New(d, device.Shape{3, classes}, 0)
				for k := range x.V {
					if row, c := k/width, k%width; c < classes {
						tight.V[row*classes+c] = x.V[k]
					} else {
						x.V[k] = math.NaN()
					}
				}
				loss := results(t, device.Host(), kernels.CrossEntropy{}, tight, labels)[0]
				grad := results(t, device.Host(), kernels.CrossEntropyGrad{}, tight, labels, gy)[0]
				want := kerneltest.New(d, x.Shape, 0)
				for k, v := range grad.V {
					want.V[k/classes*width+k%classes] = v
				}
				for _, g := range []device.Device{roomy, bare} {
					got := results(t, g, kernels.CrossEntropy{Classes: classes}, x, labels)[0]
					require.Negative(t, kerneltest.Differ(kernels.CrossEntropy{}, got, loss), "%d of %d", classes, width)
					got = results(t, g, kernels.CrossEntropyGrad{Classes: classes}, x, labels, gy)[0]
					require.Negative(t, kerneltest.Differ(kernels.CrossEntropyGrad{}, got, want), "%d of %d", classes, width)
				}
			}
		}
	})
}

// The definition adds up in float64, without subtracting anything but the greatest.
func TestCrossEntropyOfFloat32KeepsItsDigitsWhereverTheRowsLie(t *testing.T) {
	r, g := rand.New(rand.NewPCG(8, 8)), machine(t)
	for _, n := range []int{1, 2, 3, 4, 5, 31, 33, 127, 128, 1023, 1025, 4100} {
		for _, spread := range []float64{0.1, 3, 30, 1e30} {
			for _, middle := range []float64{0, -1e4, 3e5} {
				x := kerneltest.New(device.Float32, device.Shape{1, n}, make([]float64, n)...)
				most := math.Inf(-1)
				for k := range x.V {
					x.V[k] = float64(float32(spread*r.NormFloat64() + middle))
					most = max(most, x.V[k])
				}
				at, sum := r.IntN(n), 0.0
				for _, v := range x.V {
					sum += math.Exp(v - most)
				}
				want := math.Log(sum) + most - x.V[at]
				got := results(t, g, kernels.CrossEntropy{}, x, kerneltest.New(device.Int32, device.Shape{1}, float64(at)))[0].V[0]
				require.InDelta(t, want, got, 5e-7*(1+math.Abs(want)), "%d of spread %g about %g", n, spread, middle)
			}
		}
	}
}

func TestLayerNormKeepsItsDigitsWhereTheMeanIsFarFromZero(t *testing.T) {
	x := drawn(rand.New(rand.NewPCG(1, 1)), device.Float32, 2, 300)
	for k, v := range x.V {
		x.V[k] = math.Round(v*16)/16 + 20000 // numbers of the dtype
	}
	kerneltest.Check(t, machine(t), kernels.Normalize{Eps: 1e-5}, x)
}
