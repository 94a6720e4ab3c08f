// Code generated from table16.go by go test -run TestTheNarrowLoopsAreTheWideOnes -update; DO NOT EDIT.

//go:build goexperiment.simd && amd64

package vec

// table8 is the loops of float32.
func table8(name string) *Loops[float32] {
	return &Loops[float32]{
		Name: name,

		Add: func(o, a, b []float32) {
			zip8(o, a, b, k.zero.x8(), func(a, b, _ f32x8) f32x8 { return a.Add(b) })
		},
		Sub: func(o, a, b []float32) {
			zip8(o, a, b, k.zero.x8(), func(a, b, _ f32x8) f32x8 { return a.Sub(b) })
		},
		Mul: func(o, a, b []float32) {
			zip8(o, a, b, k.zero.x8(), func(a, b, _ f32x8) f32x8 { return a.Mul(b) })
		},
		Div: func(o, a, b []float32) {
			zip8(o, a, b, k.zero.x8(), func(a, b, _ f32x8) f32x8 { return a.Div(b) })
		},
		Maximum: func(o, a, b []float32) {
			zip8(o, a, b, k.zero.x8(), func(a, b, _ f32x8) f32x8 { return maximum8(a, b) })
		},
		Minimum: func(o, a, b []float32) {
			zip8(o, a, b, k.zero.x8(), func(a, b, _ f32x8) f32x8 { return minimum8(a, b) })
		},
		Less: func(o, a, b []float32) {
			zip8(o, a, b, k.one.x8(), func(a, b, one f32x8) f32x8 { return one.Masked(a.Less(b)) })
		},
		LessEqual: func(o, a, b []float32) {
			zip8(o, a, b, k.one.x8(), func(a, b, one f32x8) f32x8 { return one.Masked(a.LessEqual(b)) })
		},
		Equal: func(o, a, b []float32) {
			zip8(o, a, b, k.one.x8(), func(a, b, one f32x8) f32x8 { return one.Masked(a.Equal(b)) })
		},

		TanhGrad: func(o, y, gy []float32) {
			zip8(o, y, gy, k.one.x8(), func(y, gy, one f32x8) f32x8 { return gy.Mul(one.Sub(y.Mul(y))) })
		},
		SigmoidGrad: func(o, y, gy []float32) {
			zip8(o, y, gy, k.one.x8(), func(y, gy, one f32x8) f32x8 { return gy.Mul(y).Mul(one.Sub(y)) })
		},
		ReluGrad: func(o, x, gy []float32) {
			zip8(o, x, gy, k.zero.x8(), func(x, gy, zero f32x8) f32x8 { return where8(x.LessEqual(zero), zero, gy) })
		},
		GeluGrad: func(o, x, gy []float32) {
			zip8(o, x, gy, k.zero.x8(), func(x, gy, _ f32x8) f32x8 { return gy.Mul(geluGrad8(x)) })
		},
		MulAdd: mulAdd8,
		AddScaled: func(o, a, b []float32, c float32) {
			zip8(o, a, b, all8(c), func(a, b, c f32x8) f32x8 { return b.MulAdd(c, a) })
		},

		Neg: func(o, x []float32) {
			each8(o, x, k.zero.x8(), func(x, _ f32x8) f32x8 { return neg8(x) })
		},
		Exp: func(o, x []float32) {
			each8(o, x, k.zero.x8(), func(x, _ f32x8) f32x8 { return exp8(x) })
		},
		Log: func(o, x []float32) {
			each8(o, x, k.zero.x8(), func(x, _ f32x8) f32x8 { return log8(x) })
		},
		Sqrt: func(o, x []float32) {
			each8(o, x, k.zero.x8(), func(x, _ f32x8) f32x8 { return x.Sqrt() })
		},
		Tanh: func(o, x []float32) {
			each8(o, x, k.zero.x8(), func(x, _ f32x8) f32x8 { return tanh8(x) })
		},
		Sigmoid: func(o, x []float32) {
			each8(o, x, k.zero.x8(), func(x, _ f32x8) f32x8 { return sigmoid8(x) })
		},
		Relu: func(o, x []float32) {
			each8(o, x, k.zero.x8(), func(x, _ f32x8) f32x8 { return relu8(x) })
		},
		Gelu: func(o, x []float32) {
			each8(o, x, k.zero.x8(), func(x, _ f32x8) f32x8 { return gelu8(x) })
		},
		Scale: func(o, x []float32, c float32) {
			each8(o, x, all8(c), func(x, c f32x8) f32x8 { return x.Mul(c) })
		},
		Shift: func(o, x []float32, c float32) {
			each8(o, x, all8(c), func(x, c f32x8) f32x8 { return x.Add(c) })
		},
		Standardize: func(o, x []float32, mean, scale float64) {
			high := float32(mean)
			low, by := all8(float32(mean-float64(high))), all8(float32(scale))
			each8(o, x, all8(high), func(x, high f32x8) f32x8 { return x.Sub(high).Sub(low).Mul(by) })
		},

		Sum:            sum8,
		SumSquares:     func(x []float32) float64 { return products8(x, x, 0) },
		Dot:            func(a, b []float32) float64 { return products8(a, b, 0) },
		Variance:       func(x []float32, mean float64) float64 { return products8(x, x, mean) },
		Max:            max8,
		Accumulate:     accumulate8,
		AccumulateMul:  accumulateMul8,
		AccumulateRows: accumulateRows8,
		ExpSum:         expSum8,
		Descend:        descend8,
		Momentum:       momentum8,
		Adam:           adam8,
	}
}
