package cpu

import (
	"math"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/vec"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/cpu/internal/parallel"
	"github.com/weft-project/weft/kernels/cpu/internal/scratch"
)

// norms are the bodies of what normalises rows.
func norms[T vec.Float](i kernels.Instr, in, _ []kernels.Type) parallel.Body {
	switch i := i.(type) {
	case kernels.Normalize:
		return normalizeBody[T](i, in[0])
	case kernels.NormalizeGrad:
		return normalizeGradBody[T](i, in[0])
	case kernels.LayerNorm:
		return layerNormBody[T](i, in[0])
	case kernels.LayerNormGrad:
		return layerNormGradBody[T](i, in[0])
	}
	return nil
}

// moments gives the mean of a row and 1/√(variance+eps), in two passes.
func moments[T vec.Float](v *vec.Loops[T], x []T, eps float64) (mean, rstd float64) {
	mean = v.Sum(x) / float64(len(x))
	return mean, 1 / math.Sqrt(v.Variance(x, mean)/float64(len(x))+eps)
}

// normalizeRow is o = x̂, the row with mean 0 and variance 1. It gives the factor that made the
// variance so.
func normalizeRow[T vec.Float](v *vec.Loops[T], o, x []T, eps float64) (rstd float64) {
	mean, rstd := moments(v, x, eps)
	v.Standardize(o, x, mean, rstd)
	return rstd
}

// normalizeGradRow is o = rstd·(g − mean g − x̂·mean(g·x̂)), where g is the gradient of x̂. It may
// be written over g.
func normalizeGradRow[T vec.Float](v *vec.Loops[T], o, hat, g []T, rstd float64) {
	n := float64(len(g))
	mean, along := v.Sum(g)/n, v.Dot(g, hat)/n
	v.AddScaled(o, g, hat, T(-along))
	v.Standardize(o, o, mean, rstd)
}

func normalizeBody[T vec.Float](i kernels.Normalize, t kernels.Type) parallel.Body {
	n, v := t.Shape[len(t.Shape)-1], vec.Best[T]()
	return parallel.Rows(rowsOf(t), n, func(outs, ins [][]byte, from, to int) {
		o, x := device.As[T](outs[0])[:to*n], device.As[T](ins[0])
		rows(o, n, from, func(at int) { normalizeRow(v, o[at:at+n], x[at:at+n], i.Eps) })
	})
}

// rowsOf is how many rows there are along the last axis.
func rowsOf(t kernels.Type) int { return t.Shape[:len(t.Shape)-1].Elems() }

func normalizeGradBody[T vec.Float](i kernels.NormalizeGrad, t kernels.Type) parallel.Body {
	n, v := t.Shape[len(t.Shape)-1], vec.Best[T]()
	return parallel.Rows(rowsOf(t), n, func(outs, ins [][]byte, from, to int) {
		o, x, gy := device.As[T](outs[0])[:to*n], device.As[T](ins[0]), device.As[T](ins[1])
		s := scratch.Take(8 * n)
		defer s.Free()
		hat := scratch.Elems[T](s)[:n]
		rows(o, n, from, func(at int) {
			rstd := normalizeRow(v, hat, x[at:at+n], i.Eps)
			normalizeGradRow(v, o[at:at+n], hat, gy[at:at+n], rstd)
		})
	})
}

func layerNormBody[T vec.Float](i kernels.LayerNorm, t kernels.Type) parallel.Body {
	n, v := t.Shape[len(t.Shape)-1], vec.Best[T]()
	return parallel.Rows(rowsOf(t), n, func(outs, ins [][]byte, from, to int) {
		o, x, gamma, beta := device.As[T](outs[0])[:to*n], device.As[T](ins[0]), device.As[T](ins[1]), device.As[T](ins[2])
		rows(o, n, from, func(at int) {
			y := o[at : at+n]
			normalizeRow(v, y, x[at:at+n], i.Eps)
			v.MulAdd(y, y, gamma, beta)
		})
	})
}

// layerNormGradBody goes through all rows in one piece: the parameters' gradients are sums over
// them.
func layerNormGradBody[T vec.Float](i kernels.LayerNormGrad, t kernels.Type) parallel.Body {
	n, v := t.Shape[len(t.Shape)-1], vec.Best[T]()
	return func(outs, ins [][]byte) error {
		gx, x, gamma, gy := device.As[T](outs[0]), device.As[T](ins[0]), device.As[T](ins[1]), device.As[T](ins[2])
		s := scratch.Take(8 * 4 * n)
		defer s.Free()
		sums, room := scratch.Elems[float64](s)[:2*n], device.As[T](device.Bytes(s.Words[2*n:]))
		clear(sums)
		ggamma, gbeta, hat, g := sums[:n], sums[n:], room[:n], room[n:2*n]
		rows(x, n, 0, func(at int) {
			gy := gy[at : at+n]
			rstd := normalizeRow(v, hat, x[at:at+n], i.Eps)
			v.Accumulate(gbeta, gy)
			v.AccumulateMul(ggamma, gy, hat)
			v.Mul(g, gy, gamma)
			normalizeGradRow(v, gx[at:at+n], hat, g, rstd)
		})
		narrow(device.As[T](outs[1]), ggamma)
		narrow(device.As[T](outs[2]), gbeta)
		return nil
	}
}

// narrow rounds sums.
func narrow[T vec.Float](o []T, sums []float64) {
	for k, s := range sums {
		o[k] = T(s)
	}
}
