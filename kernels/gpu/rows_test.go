package gpu

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda/ptx"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/kerneltest"
)

// machine is a GPU as the interpreter has it. It may have less shared memory than it could.
func machine(t *testing.T, c ptx.Config) *device.Accelerator {
	d, err := On(ptx.New(c), device.CUDA(0))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
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

func TestRowKernelsAgreeWithTheirDefinitionsAtEveryWidth(t *testing.T) {
	eachFloat(t, func(t *testing.T, r *rand.Rand, d device.Dtype) {
		g := machine(t, ptx.Config{})
		for _, s := range [][2]int{{0, 3}, {3, 0}, {1, 1}, {5, 2}, {3, 4}, {9, 31}, {33, 8}, {2, 32}, {3, 33}, {7, 64}, {2, 127}, {2, 257}, {3, 260}, {2, 1001}, {1, 1200}} {
			t.Run(fmt.Sprint(s), func(t *testing.T) {
				x, y := drawn(r, d, s[0], s[1]), drawn(r, d, s[0], s[1])
				gamma, beta := drawn(r, d, s[1]), drawn(r, d, s[1])
				for _, log := range []bool{false, true} {
					kerneltest.Check(t, g, kernels.Softmax{Axis: 1, Log: log}, x)
					if s[0]*s[1] > 0 {
						p, err := kerneltest.Oracle(kernels.Softmax{Axis: 1, Log: log}, []kerneltest.Tensor{x}, []kernels.Type{x.Type})
						require.NoError(t, err)
						kerneltest.Check(t, g, kernels.SoftmaxGrad{Axis: 1, Log: log}, kerneltest.New(d, x.Shape, p[0].V...), y)
					}
				}
				kerneltest.Check(t, g, kernels.Normalize{Eps: 1e-5}, x)
				kerneltest.Check(t, g, kernels.NormalizeGrad{Eps: 1e-5}, x, y)
				kerneltest.Check(t, g, kernels.LayerNorm{Eps: 1e-5}, x, gamma, beta)
				kerneltest.Check(t, g, kernels.LayerNormGrad{Eps: 1e-5}, x, gamma, y)
				if s[0]*s[1] > 0 {
					labels := drawnIDs(r, device.Int64, s[1], s[0])
					kerneltest.Check(t, g, kernels.CrossEntropy{}, x, labels)
					kerneltest.Check(t, g, kernels.CrossEntropyGrad{}, x, labels, drawn(r, d))
				}
			})
		}
	})
}

func TestRowKernelsAgreeForEveryFamily(t *testing.T) {
	for k, family := range []string{"Softmax", "SoftmaxGrad", "CrossEntropy", "CrossEntropyGrad", "Normalize", "NormalizeGrad", "LayerNorm", "LayerNormGrad",
		"Gather", "ScatterAdd", "Update", "UpdateMany", "OnRows", "Random", "Dropout"} {
		t.Run(family, func(t *testing.T) {
			g, r := machine(t, ptx.Config{}), rand.New(rand.NewPCG(uint64(k), 1))
			for range 40 {
				i, in := kerneltest.Case(r, family)
				kerneltest.Check(t, g, i, in...)
			}
		})
	}
}
