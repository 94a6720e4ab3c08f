package vec

import "sync"

// Float is what rows are made of.
type Float interface{ float32 | float64 }

// Loops is one implementation, for one type of elements.
type Loops[T Float] struct {
	Name string // "avx512", "avx2" or "plain"

	// Of two rows, into o. Maximum and Minimum are NaN where one of the two is; Less, LessEqual and
	// Equal are 1 where it is so, else 0.
	Add, Sub, Mul, Div, Maximum, Minimum, Less, LessEqual, Equal func(o, a, b []T)
	// Gradients: of a saved result y or operand x, and the gradient gy.
	TanhGrad, SigmoidGrad, ReluGrad, GeluGrad func(o, saved, gy []T)
	// MulAdd is a·b + c, AddScaled is a + c·b: rounded once or twice, as the processor does it.
	MulAdd    func(o, a, b, c []T)
	AddScaled func(o, a, b []T, c T)

	// Of one row, into o.
	Neg, Exp, Log, Sqrt, Tanh, Sigmoid, Relu, Gelu func(o, x []T)
	Scale, Shift                                   func(o, x []T, c T)
	// Standardize is (x−mean)·scale, with a mean that is exact beyond the row's own precision.
	Standardize func(o, x []T, mean, scale float64)

	// Of a row, to a number. Sums are carried out in float64.
	Sum        func(x []T) float64
	SumSquares func(x []T) float64
	Dot        func(a, b []T) float64
	// Variance is Σ(x−mean)².
	Variance func(x []T, mean float64) float64
	Max      func(x []T) T // NaN where there is one; −Inf of nothing
	// Accumulate adds a row to sums: acc += x. AccumulateMul adds the product of two: acc += a·b.
	// AccumulateRows adds the rows of x, which follow each other and are as long as acc, in order.
	Accumulate     func(acc []float64, x []T)
	AccumulateMul  func(acc []float64, a, b []T)
	AccumulateRows func(acc []float64, x []T, rows int)
	// ExpSum is o = exp(x−m), and the sum of o.
	ExpSum func(o, x []T, m T) float64

	// Steps of optimizers, of weights p and gradients g, into o; every implementation gives the
	// same bits. Descend is p − lr·(scale·g + decay·p). Momentum keeps an average a; Adam keeps
	// that of gradients m and of their squares v, and, unless it is nil, the largest of those, x.
	Descend  func(o, p, g []T, lr, scale, decay T)
	Momentum func(po, ao, p, g, a []T, s MomentumStep[T])
	Adam     func(po, mo, vo, xo, p, g, m, v, x []T, s AdamStep[T])
}

var (
	all32 = sync.OnceValue(func() []*Loops[float32] { return append(vectors32(), plain[float32]()) })
	all64 = sync.OnceValue(func() []*Loops[float64] { return append(vectors64(), plain[float64]()) })
)

// All lists every implementation that this processor can run, the fastest first and plain Go last.
func All[T Float]() []*Loops[T] {
	if l, ok := any(all32()).([]*Loops[T]); ok {
		return l
	}
	return any(all64()).([]*Loops[T])
}

// Best is the fastest implementation that this processor can run. It is chosen once.
func Best[T Float]() *Loops[T] { return All[T]()[0] }

// Plain is the implementation in plain Go.
func Plain[T Float]() *Loops[T] {
	a := All[T]()
	return a[len(a)-1]
}
