package vec

import "math"

// plain is the loops in plain Go. What is no arithmetic of the element's own type is computed in
// float64 and rounded once.
func plain[T Float]() *Loops[T] {
	return &Loops[T]{
		Name:    "plain",
		Add:     plainAdd[T],
		Sub:     plainSub[T],
		Mul:     plainMul[T],
		Div:     plainDiv[T],
		Maximum: func(o, a, b []T) { plainBinary(o, a, b, func(a, b T) T { return max(a, b) }) },
		Minimum: func(o, a, b []T) { plainBinary(o, a, b, func(a, b T) T { return min(a, b) }) },

		Less:      func(o, a, b []T) { plainBinary(o, a, b, func(a, b T) T { return truth[T](a < b) }) },
		LessEqual: func(o, a, b []T) { plainBinary(o, a, b, func(a, b T) T { return truth[T](a <= b) }) },
		Equal:     func(o, a, b []T) { plainBinary(o, a, b, func(a, b T) T { return truth[T](a == b) }) },

		TanhGrad:    func(o, y, gy []T) { plainBinary(o, y, gy, func(y, gy T) T { return gy * (1 - y*y) }) },
		SigmoidGrad: func(o, y, gy []T) { plainBinary(o, y, gy, func(y, gy T) T { return gy * y * (1 - y) }) },
		ReluGrad:    func(o, x, gy []T) { plainBinary(o, x, gy, reluGrad[T]) },
		GeluGrad: func(o, x, gy []T) {
			Stretches(len(o), func(from, to int) {
				plainBinary(o[from:to], x[from:to], gy[from:to], func(x, gy T) T { return gy * T(geluGrad(float64(x))) })
			})
		},
		MulAdd: func(o, a, b, c []T) {
			for k := range o {
				o[k] = a[k]*b[k] + c[k]
			}
		},
		AddScaled: func(o, a, b []T, c T) { plainBinary(o, a, b, func(a, b T) T { return a + c*b }) },

		Neg:     func(o, x []T) { plainUnary(o, x, func(v T) T { return -v }) },
		Exp:     inFloat64[T](exp),
		Log:     inFloat64[T](log),
		Sqrt:    inFloat64[T](math.Sqrt),
		Tanh:    inFloat64[T](math.Tanh),
		Sigmoid: inFloat64[T](sigmoid),
		Relu:    func(o, x []T) { plainUnary(o, x, relu[T]) },
		Gelu:    inFloat64[T](gelu),
		Scale:   func(o, x []T, c T) { plainUnary(o, x, func(v T) T { return v * c }) },
		Shift:   func(o, x []T, c T) { plainUnary(o, x, func(v T) T { return v + c }) },
		Standardize: func(o, x []T, mean, scale float64) {
			plainUnary(o, x, func(v T) T { return T((float64(v) - mean) * scale) })
		},

		Sum:        func(x []T) float64 { return fold(x, func(v float64) float64 { return v }) },
		SumSquares: func(x []T) float64 { return fold(x, func(v float64) float64 { return v * v }) },
		Variance: func(x []T, mean float64) float64 {
			return fold(x, func(v float64) float64 { return (v - mean) * (v - mean) })
		},
		Dot: func(a, b []T) float64 {
			s := 0.0
			for k, v := range a {
				s += float64(v) * float64(b[k])
			}
			return s
		},
		Max: func(x []T) T {
			m := T(math.Inf(-1))
			for _, v := range x {
				m = max(m, v)
			}
			return m
		},
		Accumulate: func(acc []float64, x []T) {
			for k := range acc {
				acc[k] += float64(x[k])
			}
		},
		AccumulateRows: func(acc []float64, x []T, rows int) {
			for r := range rows {
				for k, v := range x[r*len(acc) : (r+1)*len(acc)] {
					acc[k] += float64(v)
				}
			}
		},
		AccumulateMul: func(acc []float64, a, b []T) {
			for k := range acc {
				acc[k] += float64(a[k]) * float64(b[k])
			}
		},
		ExpSum: func(o, x []T, m T) float64 {
			s := 0.0
			Stretches(len(o), func(from, to int) {
				for k := from; k < to; k++ {
					e := math.Exp(float64(x[k]) - float64(m))
					s += e
					o[k] = T(e)
				}
			})
			return s
		},
		Descend:  plainDescend[T],
		Momentum: plainMomentum[T],
		Adam:     plainAdam[T],
	}
}

// plainUnary is small so that it is inlined, with the function, where it is called.
func plainUnary[T Float](o, x []T, f func(T) T) {
	for k := range o {
		o[k] = f(x[k])
	}
}

// truth is written so that no branch is made of it.
func truth[T Float](is bool) T {
	v := uint8(0)
	if is {
		v = 1
	}
	return T(v)
}

func plainBinary[T Float](o, a, b []T, f func(a, b T) T) {
	for k := range o {
		o[k] = f(a[k], b[k])
	}
}

func plainAdd[T Float](o, a, b []T) {
	a, b = a[:len(o)], b[:len(o)]
	for k := range o {
		o[k] = a[k] + b[k]
	}
}

func plainSub[T Float](o, a, b []T) {
	a, b = a[:len(o)], b[:len(o)]
	for k := range o {
		o[k] = a[k] - b[k]
	}
}

func plainMul[T Float](o, a, b []T) {
	a, b = a[:len(o)], b[:len(o)]
	for k := range o {
		o[k] = a[k] * b[k]
	}
}

func plainDiv[T Float](o, a, b []T) {
	a, b = a[:len(o)], b[:len(o)]
	for k := range o {
		o[k] = a[k] / b[k]
	}
}

func inFloat64[T Float](f func(float64) float64) func(o, x []T) {
	return func(o, x []T) {
		Stretches(len(o), func(from, to int) {
			for k := from; k < to; k++ {
				o[k] = T(f(float64(x[k])))
			}
		})
	}
}

// stretch is how many scalar functions of an element are computed before upper halves of vector
// registers are cleared: in less than a tenth of the time for which a goroutine runs undisturbed,
// however slow they are.
const stretch = 64

// Stretches calls do with all of n elements, some at a time, after [ClearUppers]: for loops of
// scalar functions.
func Stretches(n int, do func(from, to int)) {
	for from := 0; from < n; from += stretch {
		ClearUppers()
		do(from, min(from+stretch, n))
	}
}

// fold adds up f of a row in four places, so that an addition need not wait for the one before.
func fold[T Float](x []T, f func(float64) float64) float64 {
	var a, b, c, d float64
	for ; len(x) >= 4; x = x[4:] {
		a, b, c, d = a+f(float64(x[0])), b+f(float64(x[1])), c+f(float64(x[2])), d+f(float64(x[3]))
	}
	for _, v := range x {
		a += f(float64(v))
	}
	return a + b + (c + d)
}

func relu[T Float](v T) T {
	if v < 0 { // a NaN passes
		return 0
	}
	return v
}

func reluGrad[T Float](x, gy T) T {
	if x <= 0 { // not where x is NaN
		return 0
	}
	return gy
}

// sigmoid never computes the exponential of a large positive number.
func sigmoid(x float64) float64 {
	if x >= 0 {
		return 1 / (1 + math.Exp(-x))
	}
	e := math.Exp(x)
	return e / (1 + e)
}

// normalCDF is Φ; erfc keeps its small values exact.
func normalCDF(x float64) float64 { return 0.5 * math.Erfc(-x/math.Sqrt2) }

func gelu(x float64) float64 {
	if math.IsInf(x, -1) {
		return 0
	}
	return x * normalCDF(x)
}

func geluGrad(x float64) float64 {
	const invSqrt2Pi = 0.3989422804014326779399460599343818684758586311649
	if math.IsInf(x, 0) {
		return normalCDF(x)
	}
	return normalCDF(x) + x*invSqrt2Pi*math.Exp(-x*x/2)
}
