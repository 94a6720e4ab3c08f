//go:build goexperiment.simd && amd64

package vec

// table16 is the loops of float32.
func table16(name string) *Loops[float32] {
	return &Loops[float32]{
		Name: name,

		Add: func(o, a, b []float32) {
			zip16(o, a, b, k.zero.x16(), func(a, b, _ f32x16) f32x16 { return a.Add(b) })
		},
		Sub: func(o, a, b []float32) {
			zip16(o, a, b, k.zero.x16(), func(a, b, _ f32x16) f32x16 { return a.Sub(b) })
		},
		Mul: func(o, a, b []float32) {
			zip16(o, a, b, k.zero.x16(), func(a, b, _ f32x16) f32x16 { return a.Mul(b) })
		},
		Div: func(o, a, b []float32) {
			zip16(o, a, b, k.zero.x16(), func(a, b, _ f32x16) f32x16 { return a.Div(b) })
		},
		Maximum: func(o, a, b []float32) {
			zip16(o, a, b, k.zero.x16(), func(a, b, _ f32x16) f32x16 { return maximum16(a, b) })
		},
		Minimum: func(o, a, b []float32) {
			zip16(o, a, b, k.zero.x16(), func(a, b, _ f32x16) f32x16 { return minimum16(a, b) })
		},
		Less: func(o, a, b []float32) {
			zip16(o, a, b, k.one.x16(), func(a, b, one f32x16) f32x16 { return one.Masked(a.Less(b)) })
		},
		LessEqual: func(o, a, b []float32) {
			zip16(o, a, b, k.one.x16(), func(a, b, one f32x16) f32x16 { return one.Masked(a.LessEqual(b)) })
		},
		Equal: func(o, a, b []float32) {
			zip16(o, a, b, k.one.x16(), func(a, b, one f32x16) f32x16 { return one.Masked(a.Equal(b)) })
		},

		TanhGrad: func(o, y, gy []float32) {
			zip16(o, y, gy, k.one.x16(), func(y, gy, one f32x16) f32x16 { return gy.Mul(one.Sub(y.Mul(y))) })
		},
		SigmoidGrad: func(o, y, gy []float32) {
			zip16(o, y, gy, k.one.x16(), func(y, gy, one f32x16) f32x16 { return gy.Mul(y).Mul(one.Sub(y)) })
		},
		ReluGrad: func(o, x, gy []float32) {
			zip16(o, x, gy, k.zero.x16(), func(x, gy, zero f32x16) f32x16 { return where16(x.LessEqual(zero), zero, gy) })
		},
		GeluGrad: func(o, x, gy []float32) {
			zip16(o, x, gy, k.zero.x16(), func(x, gy, _ f32x16) f32x16 { return gy.Mul(geluGrad16(x)) })
		},
		MulAdd: mulAdd16,
		AddScaled: func(o, a, b []float32, c float32) {
			zip16(o, a, b, all16(c), func(a, b, c f32x16) f32x16 { return b.MulAdd(c, a) })
		},

		Neg: func(o, x []float32) {
			each16(o, x, k.zero.x16(), func(x, _ f32x16) f32x16 { return neg16(x) })
		},
		Exp: func(o, x []float32) {
			each16(o, x, k.zero.x16(), func(x, _ f32x16) f32x16 { return exp16(x) })
		},
		Log: func(o, x []float32) {
			each16(o, x, k.zero.x16(), func(x, _ f32x16) f32x16 { return log16(x) })
		},
		Sqrt: func(o, x []float32) {
			each16(o, x, k.zero.x16(), func(x, _ f32x16) f32x16 { return x.Sqrt() })
		},
		Tanh: func(o, x []float32) {
			each16(o, x, k.zero.x16(), func(x, _ f32x16) f32x16 { return tanh16(x) })
		},
		Sigmoid: func(o, x []float32) {
			each16(o, x, k.zero.x16(), func(x, _ f32x16) f32x16 { return sigmoid16(x) })
		},
		Relu: func(o, x []float32) {
			each16(o, x, k.zero.x16(), func(x, _ f32x16) f32x16 { return relu16(x) })
		},
		Gelu: func(o, x []float32) {
			each16(o, x, k.zero.x16(), func(x, _ f32x16) f32x16 { return gelu16(x) })
		},
		Scale: func(o, x []float32, c float32) {
			each16(o, x, all16(c), func(x, c f32x16) f32x16 { return x.Mul(c) })
		},
		Shift: func(o, x []float32, c float32) {
			each16(o, x, all16(c), func(x, c f32x16) f32x16 { return x.Add(c) })
		},
		Standardize: func(o, x []float32, mean, scale float64) {
			high := float32(mean)
			low, by := all16(float32(mean-float64(high))), all16(float32(scale))
			each16(o, x, all16(high), func(x, high f32x16) f32x16 { return x.Sub(high).Sub(low).Mul(by) })
		},

		Sum:            sum16,
		SumSquares:     func(x []float32) float64 { return products16(x, x, 0) },
		Dot:            func(a, b []float32) float64 { return products16(a, b, 0) },
		Variance:       func(x []float32, mean float64) float64 { return products16(x, x, mean) },
		Max:            max16,
		Accumulate:     accumulate16,
		AccumulateMul:  accumulateMul16,
		AccumulateRows: accumulateRows16,
		ExpSum:         expSum16,
		Descend:        descend16,
		Momentum:       momentum16,
		Adam:           adam16,
	}
}
