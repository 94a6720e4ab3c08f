package kernels

import (
	"math"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels/vec"
)

// moments gives the mean of a row and 1/√(variance+eps), in two passes.
func moments[T vec.Float](v *vec.Loops[T], x []T, eps float64) (mean, rstd float64) {
	mean = v.Sum(x) / float64(len(x))
	return mean, 1 / math.Sqrt(v.Variance(x, mean)/float64(len(x))+eps)
}

// normalizeRow is o = x̂, the row with mean 0 and variance 1. It gives the factor that made the variance so.
func normalizeRow[T vec.Float](v *vec.Loops[T], o, x []T, eps float64) (rstd float64) {
	mean, rstd := moments(v, x, eps)
	v.Standardize(o, x, mean, rstd)
	return rstd
}

// normalizeGradRow is o = rstd·(g − mean g − x̂·mean(g·x̂)), where g is the gradient of x̂. It may be written over g.
func normalizeGradRow[T vec.Float](v *vec.Loops[T], o, hat, g []T, rstd float64) {
	n := float64(len(g))
	mean, along := v.Sum(g)/n, v.Dot(g, hat)/n
	v.AddScaled(o, g, hat, T(-along))
	v.Standardize(o, o, mean, rstd)
}

func normalizeBody[T vec.Float](i Normalize, t Type) body {
	n, v := t.Shape[len(t.Shape)-1], vec.Best[T]()
	return func(outs, ins [][]byte) error {
		o, x := device.As[T](outs[0]), device.As[T](ins[0])
		rows(len(x), n, func(from, to int) { normalizeRow(v, o[from:to], x[from:to], i.Eps) })
		return nil
	}
}

func normalizeGradBody[T vec.Float](i NormalizeGrad, t Type) body {
	n, v := t.Shape[len(t.Shape)-1], vec.Best[T]()
	return func(outs, ins [][]byte) error {
		o, x, gy := device.As[T](outs[0]), device.As[T](ins[0]), device.As[T](ins[1])
		s := takeScratch(8 * n)
		defer s.free()
		hat := elems[T](s)[:n]
		rows(len(x), n, func(from, to int) {
			rstd := normalizeRow(v, hat, x[from:to], i.Eps)
			normalizeGradRow(v, o[from:to], hat, gy[from:to], rstd)
		})
		return nil
	}
}

func layerNormBody[T vec.Float](i LayerNorm, t Type) body {
	n, v := t.Shape[len(t.Shape)-1], vec.Best[T]()
	return func(outs, ins [][]byte) error {
		o, x, gamma, beta := device.As[T](outs[0]), device.As[T](ins[0]), device.As[T](ins[1]), device.As[T](ins[2])
		rows(len(x), n, func(from, to int) {
			normalizeRow(v, o[from:to], x[from:to], i.Eps)
			v.MulAdd(o[from:to], o[from:to], gamma, beta)
		})
		return nil
	}
}

func layerNormGradBody[T vec.Float](i LayerNormGrad, t Type) body {
	n, v := t.Shape[len(t.Shape)-1], vec.Best[T]()
	return func(outs, ins [][]byte) error {
		gx, x, gamma, gy := device.As[T](outs[0]), device.As[T](ins[0]), device.As[T](ins[1]), device.As[T](ins[2])
		s := takeScratch(8 * 4 * n)
		defer s.free()
		sums, room := elems[float64](s)[:2*n], device.As[T](device.Bytes(s.words[2*n:]))
		clear(sums)
		ggamma, gbeta, hat, g := sums[:n], sums[n:], room[:n], room[n:2*n]
		rows(len(x), n, func(from, to int) {
			rstd := normalizeRow(v, hat, x[from:to], i.Eps)
			v.Accumulate(gbeta, gy[from:to])
			v.AccumulateMul(ggamma, gy[from:to], hat)
			v.Mul(g, gy[from:to], gamma)
			normalizeGradRow(v, gx[from:to], hat, g, rstd)
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
