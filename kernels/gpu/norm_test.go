//go:build !race

package gpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/kerneltest"
	"github.com/weft-project/weft/kernels"
)

// normGradOracle is what LayerNormGrad is, row by row.
func normGradOracle(x, gamma, gy []float64, eps float64) (gx, ggamma, gbeta []float64) {
	n := len(gamma)
	gx, ggamma, gbeta = make([]float64, len(x)), make([]float64, n), make([]float64, n)
	for at := 0; at < len(x); at += n {
		var mean, square, whole, along float64
		for _, v := range x[at:][:n] {
			mean += v / float64(n)
		}
		for _, v := range x[at:][:n] {
			square += (v - mean) * (v - mean) / float64(n)
		}
		scale := 1 / math.Sqrt(square+eps)
		for k, v := range x[at:][:n] {
			hat, g := (v-mean)*scale, gy[at+k]
			ggamma[k] += g * hat
			gbeta[k] += g
			whole += g * gamma[k] / float64(n)
			along += g * gamma[k] * hat / float64(n)
		}
		for k, v := range x[at:][:n] {
			gx[at+k] = scale * (gy[at+k]*gamma[k] - whole - (v-mean)*scale*along)
		}
	}
	return gx, ggamma, gbeta
}

func TestGradientsOfLayerNormAgreeWhereABlockHasManyRowsHoweverWide(t *testing.T) {
	r, f32 := rand.New(rand.NewPCG(23, 1)), device.Float32
	g := machine(t)
	for _, s := range []struct {
		d       device.Dtype
		rows, n int
	}{
		{f32, 4200, 130}, {f32, 4200, 132}, {f32, 8300, 65}, {device.Float64, 4200, 100}, // in registers, by lanes of a warp: rows are more than groups
		{f32, 1100, 257}, {f32, 1100, 260}, {f32, 2, 2048}, {f32, 2, 2047}, {f32, 2, 4096}, {device.Float64, 1030, 502}, // … by blocks of up to 512
		{f32, 1025, 4100}, {f32, 1030, 2049}, {device.Float64, 3, 4098}, // in none
	} {
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			x, gamma, gy := drawn(r, s.d, s.rows, s.n), drawn(r, s.d, s.n), drawn(r, s.d, s.rows, s.n)
			got := results(t, g, kernels.LayerNormGrad{Eps: 1e-5}, x, gamma, gy)
			gx, ggamma, gbeta := normGradOracle(x.V, gamma.V, gy.V, 1e-5)
			off := 0.
			for k, w := range gx {
				off = max(off, math.Abs(got[0].V[k]-w)/(1+math.Abs(w)))
			}
			require.Less(t, off, 2e-6)
			sums := 1e-6*math.Sqrt(float64(s.rows)) + 4e-6 // of so many numbers that are as often negative, each with an error of its own
			require.InDeltaSlice(t, ggamma, got[1].V, sums)
			require.InDeltaSlice(t, gbeta, got[2].V, sums)
		})
	}
	x, gy := drawn(r, f32, 3, 4104), drawn(r, f32, 3, 4104)
	kerneltest.Check(t, g, kernels.NormalizeGrad{Eps: 1e-5}, x, gy)
	lies{of: kernels.LayerNormGrad{Eps: 1e-5}, in: 4, out: 1}.check(t, machineOf(t, tensor(t)), x, drawn(r, f32, 4104), gy)
}
