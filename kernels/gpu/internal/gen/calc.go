package gen

import (
	"math"

	"github.com/weft-project/weft/kernels"
)

// calc computes with floats, all of one type. Every operation rounds by itself (.rn): an assembler
// may join others to fused ones.
type calc struct {
	*emitter
	double bool
}

func (c calc) typ() string {
	if c.double {
		return "f64"
	}
	return "f32"
}

// k is a constant.
func (c calc) k(v float64) string {
	if c.double {
		return f64(v)
	}
	return f32(v)
}

func (c calc) inf() string { return c.k(math.Inf(1)) }
func (c calc) nan() string { return c.k(math.NaN()) }

func (c calc) do(op string, args ...string) string { return c.op(op+"."+c.typ(), args...) }

func (c calc) add(a, b string) string     { return c.do("add.rn", a, b) }
func (c calc) sub(a, b string) string     { return c.do("sub.rn", a, b) }
func (c calc) mul(a, b string) string     { return c.do("mul.rn", a, b) }
func (c calc) fma(a, b, d string) string  { return c.do("fma.rn", a, b, d) }
func (c calc) neg(a string) string        { return c.do("neg", a) }
func (c calc) pick(a, b, p string) string { return c.do("selp", a, b, p) }

// test compares: a predicate.
func (c calc) test(how, a, b string) string { return c.do("setp."+how, a, b) }

// clamp brings x between bounds, and NaN too.
func (c calc) clamp(x string, lo, hi float64) string {
	return c.do("min", c.do("max", x, c.k(lo)), c.k(hi))
}

// keepNaN is y, or NaN where x is.
func (c calc) keepNaN(y, x string) string { return c.pick(c.nan(), y, c.test("nan", x, x)) }

// extreme is max or min, and NaN where either is.
func (c calc) extreme(op, a, b string) string {
	return c.pick(c.nan(), c.do(op, a, b), c.test("nan", a, b))
}

// quotient is a/b for 1 ≤ b < 2¹²⁶, in float32 to two units in the last place.
func (c calc) quotient(a, b string) string {
	if c.double {
		return c.do("div.rn", a, b)
	}
	return c.mul(a, c.op("rcp.approx.ftz.f32", b))
}

// poly is Σ k[n]·xⁿ.
func (c calc) poly(x string, k []float64) string {
	p := c.k(k[len(k)-1])
	for n := len(k) - 2; n >= 0; n-- {
		p = c.fma(p, x, c.k(k[n]))
	}
	return p
}

// step is a step of a map; a unary one ignores b.
func (c calc) step(op kernels.Instr, a, b string) string {
	if i, ok := op.(kernels.Unary); ok {
		return c.unary(i, a)
	}
	return c.binary(op.(kernels.Binary).Fn, a, b)
}

func (c calc) unary(i kernels.Unary, x string) string {
	switch i.Fn {
	case kernels.Neg:
		return c.neg(x)
	case kernels.Exp:
		return c.exp(x)
	case kernels.Log:
		return c.log(x)
	case kernels.Sqrt:
		return c.do("sqrt.rn", x)
	case kernels.Tanh:
		return c.tanh(x)
	case kernels.Sigmoid:
		return c.sigmoid(x)
	case kernels.Relu:
		return c.pick(c.k(0), x, c.test("le", x, c.k(0)))
	case kernels.Gelu:
		return c.gelu(x)
	case kernels.Scale:
		return c.mul(x, c.k(i.C))
	case kernels.Shift:
		return c.add(x, c.k(i.C))
	case kernels.Abs:
		return c.do("abs", x)
	case kernels.Ceil:
		return c.do("cvt.rpi."+c.typ(), x)
	case kernels.Floor:
		return c.do("cvt.rmi."+c.typ(), x)
	case kernels.Sin:
		return c.sine(x, 0)
	case kernels.Cos:
		return c.sine(x, 1)
	case kernels.Log1p:
		return c.log1p(x)
	case kernels.Expm1:
		return c.expm1(x)
	}
	return c.softplus(x)
}

func (c calc) binary(fn kernels.BinaryFn, a, b string) string {
	switch fn {
	case kernels.Add:
		return c.add(a, b)
	case kernels.Sub:
		return c.sub(a, b)
	case kernels.Mul:
		return c.mul(a, b)
	case kernels.Div:
		return c.do("div.rn", a, b)
	case kernels.TanhGrad:
		return c.mul(b, c.fma(c.neg(a), a, c.k(1)))
	case kernels.SigmoidGrad:
		return c.mul(c.mul(b, a), c.sub(c.k(1), a))
	case kernels.ReluGrad:
		return c.pick(c.k(0), b, c.test("le", a, c.k(0)))
	case kernels.GeluGrad:
		return c.mul(b, c.geluSlope(a))
	case kernels.Pow:
		return c.pow(a, b)
	case kernels.Maximum:
		return c.extreme("max", a, b)
	case kernels.Minimum:
		return c.extreme("min", a, b)
	case kernels.Less:
		return c.pick(c.k(1), c.k(0), c.test("lt", a, b))
	case kernels.LessEqual:
		return c.pick(c.k(1), c.k(0), c.test("le", a, b))
	}
	return c.pick(c.k(1), c.k(0), c.test("eq", a, b))
}

// weight is about how many instructions a step is.
func weight(op kernels.Instr) int {
	switch op := op.(type) {
	case kernels.Unary:
		switch op.Fn {
		case kernels.Exp, kernels.Sqrt, kernels.Sigmoid:
			return 12
		case kernels.Log, kernels.Log1p, kernels.Expm1, kernels.Tanh, kernels.Gelu, kernels.Softplus:
			return 30
		case kernels.Sin, kernels.Cos:
			return 100
		}
	case kernels.Binary:
		switch op.Fn {
		case kernels.Div:
			return 10
		case kernels.GeluGrad:
			return 30
		case kernels.Pow:
			return 100
		}
	}
	return 1
}
