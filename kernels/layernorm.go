package kernels

import (
	"math"

	"github.com/weft-project/weft/device"
)

// moments gives the mean of a row and 1/√(variance+eps), in two passes.
func moments[T device.Float](x []T, eps float64) (mean, rstd float64) {
	mean = sum(x) / float64(len(x))
	v := 0.0
	for _, e := range x {
		d := float64(e) - mean
		v += d * d
	}
	return mean, 1 / math.Sqrt(v/float64(len(x))+eps)
}

// rows calls fn with the bounds of each row of n elements.
func rows(total, n int, fn func(from, to int)) {
	for at := 0; n > 0 && at < total; at += n {
		fn(at, at+n)
	}
}

func normalizeBody[T device.Float](i Normalize, t Type) body {
	n := t.Shape[len(t.Shape)-1]
	return func(outs, ins [][]byte) error {
		o, x := device.As[T](outs[0]), device.As[T](ins[0])
		rows(len(x), n, func(from, to int) {
			mean, rstd := moments(x[from:to], i.Eps)
			for k := from; k < to; k++ {
				o[k] = T((float64(x[k]) - mean) * rstd)
			}
		})
		return nil
	}
}

func normalizeGradBody[T device.Float](i NormalizeGrad, t Type) body {
	n := t.Shape[len(t.Shape)-1]
	return func(outs, ins [][]byte) error {
		o, x, gy := device.As[T](outs[0]), device.As[T](ins[0]), device.As[T](ins[1])
		rows(len(x), n, func(from, to int) {
			mean, rstd := moments(x[from:to], i.Eps)
			var sg, sgx float64 // Σgy, Σgy·x̂
			for k := from; k < to; k++ {
				g := float64(gy[k])
				sg += g
				sgx += g * (float64(x[k]) - mean) * rstd
			}
			sg, sgx = sg/float64(n), sgx/float64(n)
			for k := from; k < to; k++ {
				hat := (float64(x[k]) - mean) * rstd
				o[k] = T(rstd * (float64(gy[k]) - sg - hat*sgx))
			}
		})
		return nil
	}
}

// sum adds in float64, in four lanes so that the additions need not wait for each other.
func sum[T device.Float](x []T) float64 {
	var a, b, c, d float64
	for ; len(x) >= 4; x = x[4:] {
		a += float64(x[0])
		b += float64(x[1])
		c += float64(x[2])
		d += float64(x[3])
	}
	for _, v := range x {
		a += float64(v)
	}
	return (a + b) + (c + d)
}
