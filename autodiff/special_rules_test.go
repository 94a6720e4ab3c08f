package autodiff

import (
	"math"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// The rules of ops at every number there is, ±0, subnormal numbers, infinities and NaN among them,
// as the IEEE has them and PyTorch: for one element at a time, and apart from everything that
// computes tensors.

// rounding rounds to the type of the elements. The rules round where PyTorch's formulas do, so that
// they overflow where those do.
type rounding func(float64) float64

// scalarRule is an op of elements.
type scalarRule struct {
	instr kernels.Instr
	y     func(r rounding, a, b float64) float64
	grad  func(r rounding, a, b, y, gy float64) [2]float64 // nil where none flows
	exact bool                                             // y has to be the nearest number; elsewhere and in gradients it may be off by units
	zeros bool                                             // its zeros have the IEEE's sign
	slack float64                                          // by how many units of gy, and of 1, a gradient and y may be off where terms cancel
}

func scalarRules() []scalarRule {
	nan, inf := math.NaN(), math.Inf(1)
	un := func(fn kernels.UnaryFn, y func(x float64) float64, grad func(r rounding, x, y, gy float64) float64) scalarRule {
		s := scalarRule{instr: kernels.Unary{Fn: fn}, y: func(r rounding, x, _ float64) float64 { return r(y(x)) }}
		if grad != nil {
			s.grad = func(r rounding, x, _, y, gy float64) [2]float64 { return [2]float64{grad(r, x, y, gy)} }
		}
		return s
	}
	bin := func(fn kernels.BinaryFn, y func(r rounding, a, b float64) float64, grad func(r rounding, a, b, y, gy float64) [2]float64) scalarRule {
		return scalarRule{instr: kernels.Binary{Fn: fn}, y: y, grad: grad, exact: true}
	}
	exact := func(s scalarRule) scalarRule { s.exact = true; return s }
	signed := func(s scalarRule) scalarRule { s.exact, s.zeros = true, true; return s }
	cancels := func(units float64, s scalarRule) scalarRule { s.slack = units; return s }
	truth := func(is func(a, b float64) bool) func(r rounding, a, b float64) float64 {
		return func(_ rounding, a, b float64) float64 {
			if is(a, b) {
				return 1
			}
			return 0
		}
	}
	// chosen is the gradient of Maximum, and with minus of Minimum. PyTorch too halves ties, and
	// gives both all of it where one is NaN.
	chosen := func(minus float64) func(r rounding, a, b, y, gy float64) [2]float64 {
		return func(r rounding, a, b, _, gy float64) [2]float64 {
			switch a, b := minus*a, minus*b; {
			case a == b:
				return [2]float64{r(gy / 2), r(gy / 2)}
			case a < b:
				return [2]float64{0, gy}
			case a > b:
				return [2]float64{gy, 0}
			}
			return [2]float64{gy, gy}
		}
	}
	constant := func(i kernels.Unary, y func(x float64) float64, by float64) scalarRule {
		s := signed(un(i.Fn, y, func(r rounding, _, _, gy float64) float64 { return r(gy * by) }))
		s.instr = i
		return s
	}
	return []scalarRule{
		signed(un(kernels.Neg, func(x float64) float64 { return -x }, func(_ rounding, _, _, gy float64) float64 { return -gy })),
		un(kernels.Exp, ruleExp, func(r rounding, _, y, gy float64) float64 { return r(gy * y) }),
		un(kernels.Log, ruleLog, func(r rounding, x, _, gy float64) float64 { return r(gy / x) }),
		signed(un(kernels.Sqrt, math.Sqrt, func(r rounding, _, y, gy float64) float64 { return r(gy / r(2*y)) })),
		cancels(4, un(kernels.Tanh, math.Tanh, func(r rounding, _, y, gy float64) float64 { return r(gy * r(1-r(y*y))) })),
		un(kernels.Sigmoid, ruleSigmoid, func(r rounding, _, y, gy float64) float64 { return r(r(gy*y) * r(1-y)) }),
		exact(un(kernels.Relu, func(x float64) float64 {
			if x <= 0 {
				return 0
			}
			return x
		}, func(_ rounding, x, _, gy float64) float64 {
			if x <= 0 { // not where it is NaN, as in PyTorch
				return 0
			}
			return gy
		})),
		// Of −∞ it and its gradient are 0, which is their limit; PyTorch's are NaN. Of ∞ the
		// gradient is gy, where PyTorch's is NaN.
		cancels(4, un(kernels.Gelu, func(x float64) float64 {
			if x == -inf {
				return 0
			}
			return x * math.Erfc(-x/math.Sqrt2) / 2
		}, func(r rounding, x, _, gy float64) float64 {
			slope := math.Erfc(-x/math.Sqrt2) / 2
			if !math.IsInf(x, 0) {
				slope += x * math.Exp(-x*x/2) / math.Sqrt(2*math.Pi)
			}
			return r(gy * r(slope))
		})),
		constant(kernels.Unary{Fn: kernels.Scale, C: -2.5}, func(x float64) float64 { return x * -2.5 }, -2.5),
		constant(kernels.Unary{Fn: kernels.Shift, C: 1.25}, func(x float64) float64 { return x + 1.25 }, 1),
		// At 0 it is 0 also of an infinite gy, where PyTorch's product with the sign is NaN.
		signed(un(kernels.Abs, math.Abs, func(_ rounding, x, _, gy float64) float64 {
			switch {
			case x > 0:
				return gy
			case x < 0:
				return -gy
			case x == 0:
				return 0
			}
			return gy * 0 // PyTorch's sign of NaN is 0
		})),
		exact(un(kernels.Ceil, math.Ceil, nil)),
		exact(un(kernels.Floor, math.Floor, nil)),
		cancels(4, un(kernels.Sin, math.Sin, func(r rounding, x, _, gy float64) float64 { return r(gy * r(math.Cos(x))) })),
		cancels(4, un(kernels.Cos, math.Cos, func(r rounding, x, _, gy float64) float64 { return r(-gy * r(math.Sin(x))) })),
		un(kernels.Log1p, math.Log1p, func(r rounding, x, _, gy float64) float64 { return r(gy / r(x+1)) }),
		un(kernels.Expm1, math.Expm1, func(r rounding, _, y, gy float64) float64 { return r(gy * r(y+1)) }),
		un(kernels.Softplus, func(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) },
			func(r rounding, x, _, gy float64) float64 { return r(gy * r(ruleSigmoid(x))) }),
		// Of ±∞ it is ±1, which is its limit; PyTorch's is NaN.
		un(kernels.Softsign, func(x float64) float64 {
			if math.IsInf(x, 0) {
				return math.Copysign(1, x)
			}
			return x / (1 + math.Abs(x))
		}, func(r rounding, x, _, gy float64) float64 { d := r(1 + math.Abs(x)); return r(r(gy/d) / d) }),

		signed(bin(kernels.Add, func(r rounding, a, b float64) float64 { return r(a + b) },
			func(_ rounding, _, _, _, gy float64) [2]float64 { return [2]float64{gy, gy} })),
		signed(bin(kernels.Sub, func(r rounding, a, b float64) float64 { return r(a - b) },
			func(_ rounding, _, _, _, gy float64) [2]float64 { return [2]float64{gy, -gy} })),
		signed(bin(kernels.Mul, func(r rounding, a, b float64) float64 { return r(a * b) },
			func(r rounding, a, b, _, gy float64) [2]float64 { return [2]float64{r(gy * b), r(gy * a)} })),
		signed(bin(kernels.Div, func(r rounding, a, b float64) float64 { return r(a / b) },
			func(r rounding, _, b, y, gy float64) [2]float64 { return [2]float64{r(gy / b), r(-gy * r(y/b))} })),
		{instr: kernels.Binary{Fn: kernels.Pow}, y: func(r rounding, a, b float64) float64 { return r(rulePow(a, b)) },
			grad: func(r rounding, a, b, y, gy float64) (g [2]float64) {
				if b != 0 {
					g[0] = r(gy * r(b*r(rulePow(a, r(b-1)))))
				}
				if a != 0 || !(b >= 0) {
					g[1] = r(gy * r(y*r(ruleLog(a))))
				}
				return g
			}},
		bin(kernels.Maximum, func(_ rounding, a, b float64) float64 {
			if a != a || b != b {
				return nan
			}
			return math.Max(a, b)
		}, chosen(1)),
		bin(kernels.Minimum, func(_ rounding, a, b float64) float64 {
			if a != a || b != b {
				return nan
			}
			return math.Min(a, b)
		}, chosen(-1)),
		bin(kernels.Less, truth(func(a, b float64) bool { return a < b }), nil),
		bin(kernels.LessEqual, truth(func(a, b float64) bool { return a <= b }), nil),
		bin(kernels.Equal, truth(func(a, b float64) bool { return a == b }), nil),
	}
}

// ruleExp goes by halves: package math's is infinite too early on some processors.
func ruleExp(x float64) float64 {
	e := math.Exp(x / 2)
	return e * e
}

// ruleLog goes by the mantissa: package math's is wrong below the normal numbers on some
// processors.
func ruleLog(x float64) float64 {
	if !(x > 0) || math.IsInf(x, 1) {
		return math.Log(x)
	}
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, e = 2*m, e-1
	}
	return math.Log(m) + float64(e)*math.Ln2
}

func ruleSigmoid(x float64) float64 {
	if x < 0 {
		return math.Exp(x) / (1 + math.Exp(x))
	}
	return 1 / (1 + math.Exp(-x))
}

// rulePow keeps subnormal numbers from package math's.
func rulePow(a, b float64) float64 {
	if m := math.Abs(a); m > 0 && m < 0x1p-1022 && !math.IsInf(b, 0) && b == b {
		odd := 1.0
		if a < 0 {
			if odd = math.Pow(-1, b); odd != odd {
				return odd
			}
		}
		return odd * ruleExp(b*ruleLog(m))
	}
	return math.Pow(a, b)
}

// expected is what an element has to be: a sum of terms in any order, and by how much it may be off
// beside rounding. What depends on the order, since a part of the sum may overflow, is anything.
type expected struct {
	terms    []float64
	off      float64 // of the sum
	relative float64 // of the terms
	exact    bool
	zeros    bool
	anything bool
}

// agrees says whether v is as expected, in elements of type d. units is how many of them rounding
// may take.
func (e expected) agrees(v float64, d device.Dtype, units float64) bool {
	most, unit, least := math.MaxFloat64, 0x1p-52, 0x1p-1074
	if d == device.Float32 {
		most, unit, least = math.MaxFloat32, 0x1p-23, 0x1p-149
	}
	sum, size, infinite := 0.0, 0.0, 0.0
	for _, t := range e.terms {
		if math.IsInf(t, 0) || t != t {
			infinite += t
			continue
		}
		sum += t
		size += math.Abs(t)
	}
	switch {
	case e.anything || len(e.terms) > 1 && size > most/2:
		return true
	case infinite != 0: // NaN too
		// What overflows just so may have been rounded down.
		return v == infinite || infinite != infinite && v != v || !e.exact && len(e.terms) == 1 && math.Abs(v) > most*(1-units*unit) && v*infinite > 0
	case e.exact:
		return v == sum && (!e.zeros || math.Signbit(v) == math.Signbit(e.terms[0]))
	case math.IsInf(v, 0):
		return size > most*(1-units*unit) && v*sum > 0
	}
	return math.Abs(v-sum) <= units*unit*size+e.relative*size+e.off*unit+4*least*float64(1+len(e.terms))
}
