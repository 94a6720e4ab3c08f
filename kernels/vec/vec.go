package vec

// Float is what rows are made of.
type Float interface{ float32 | float64 }

// Loops is one implementation, for one type of elements.
type Loops[T Float] struct {
	Name string // "avx512", "avx2" or "plain"

	// Of two rows, into o.
	Add, Sub, Mul, Div func(o, a, b []T)
	// Gradients: of a saved result y or operand x, and the gradient gy.
	TanhGrad, SigmoidGrad, ReluGrad, GeluGrad func(o, saved, gy []T)

	// Of one row, into o.
	Neg, Exp, Log, Sqrt, Tanh, Sigmoid, Relu, Gelu func(o, x []T)
	Scale, Shift                                   func(o, x []T, c T)

	// Of a row, to a number. Sums are carried out in float64.
	Sum        func(x []T) float64
	SumSquares func(x []T) float64
	Dot        func(a, b []T) float64
	Max        func(x []T) T // NaN where there is one; −Inf of nothing
	// Accumulate adds a row to sums: acc += x.
	Accumulate func(acc []float64, x []T)
	// ExpSum is o = exp(x−m), and the sum of o.
	ExpSum func(o, x []T, m T) float64
}
