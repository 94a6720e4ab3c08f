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
		return unaryCode[i.Fn].code(c, a, i.C)
	}
	return binaryCode[op.(kernels.Binary).Fn].code(c, a, b)
}

// weight is about how many instructions a step is.
func weight(op kernels.Instr) int {
	switch op := op.(type) {
	case kernels.Unary:
		return unaryCode[op.Fn].weight
	case kernels.Binary:
		return binaryCode[op.Fn].weight
	}
	return 1
}

// unaryCode has a row for each function: about how many instructions it is, and how they are made
// for x and the instruction's constant k.
var unaryCode = [kernels.UnaryFns]struct {
	weight int
	code   func(c calc, x string, k float64) string
}{
	kernels.Neg:     {1, func(c calc, x string, _ float64) string { return c.neg(x) }},
	kernels.Exp:     {12, func(c calc, x string, _ float64) string { return c.exp(x) }},
	kernels.Log:     {30, func(c calc, x string, _ float64) string { return c.log(x) }},
	kernels.Sqrt:    {12, func(c calc, x string, _ float64) string { return c.do("sqrt.rn", x) }},
	kernels.Tanh:    {30, func(c calc, x string, _ float64) string { return c.tanh(x) }},
	kernels.Sigmoid: {12, func(c calc, x string, _ float64) string { return c.sigmoid(x) }},
	kernels.Relu: {1, func(c calc, x string, _ float64) string {
		return c.pick(c.k(0), x, c.test("le", x, c.k(0)))
	}},
	kernels.Gelu:  {30, func(c calc, x string, _ float64) string { return c.gelu(x) }},
	kernels.Scale: {1, func(c calc, x string, k float64) string { return c.mul(x, c.k(k)) }},
	kernels.Shift: {1, func(c calc, x string, k float64) string { return c.add(x, c.k(k)) }},
	kernels.Abs:   {1, func(c calc, x string, _ float64) string { return c.do("abs", x) }},
	kernels.Ceil: {1, func(c calc, x string, _ float64) string {
		return c.do("cvt.rpi."+c.typ(), x)
	}},
	kernels.Floor: {1, func(c calc, x string, _ float64) string {
		return c.do("cvt.rmi."+c.typ(), x)
	}},
	kernels.Sin:      {100, func(c calc, x string, _ float64) string { return c.sine(x, 0) }},
	kernels.Cos:      {100, func(c calc, x string, _ float64) string { return c.sine(x, 1) }},
	kernels.Log1p:    {30, func(c calc, x string, _ float64) string { return c.log1p(x) }},
	kernels.Expm1:    {30, func(c calc, x string, _ float64) string { return c.expm1(x) }},
	kernels.Softplus: {30, func(c calc, x string, _ float64) string { return c.softplus(x) }},
	kernels.Softsign: {15, func(c calc, x string, _ float64) string { return c.softsign(x) }},
}

// binaryCode is unaryCode's of two operands.
var binaryCode = [kernels.BinaryFns]struct {
	weight int
	code   func(c calc, a, b string) string
}{
	kernels.Add: {1, calc.add},
	kernels.Sub: {1, calc.sub},
	kernels.Mul: {1, calc.mul},
	kernels.Div: {10, func(c calc, a, b string) string { return c.do("div.rn", a, b) }},
	kernels.TanhGrad: {1, func(c calc, y, gy string) string {
		return c.mul(gy, c.fma(c.neg(y), y, c.k(1)))
	}},
	kernels.SigmoidGrad: {1, func(c calc, y, gy string) string {
		return c.mul(c.mul(gy, y), c.sub(c.k(1), y))
	}},
	kernels.ReluGrad: {1, func(c calc, x, gy string) string {
		return c.pick(c.k(0), gy, c.test("le", x, c.k(0)))
	}},
	kernels.GeluGrad:  {30, func(c calc, x, gy string) string { return c.mul(gy, c.geluSlope(x)) }},
	kernels.Pow:       {100, calc.pow},
	kernels.Maximum:   {1, func(c calc, a, b string) string { return c.extreme("max", a, b) }},
	kernels.Minimum:   {1, func(c calc, a, b string) string { return c.extreme("min", a, b) }},
	kernels.Less:      {1, func(c calc, a, b string) string { return c.oneIf("lt", a, b) }},
	kernels.LessEqual: {1, func(c calc, a, b string) string { return c.oneIf("le", a, b) }},
	kernels.Equal:     {1, func(c calc, a, b string) string { return c.oneIf("eq", a, b) }},
}

// oneIf is 1 where the comparison holds, else 0.
func (c calc) oneIf(how, a, b string) string { return c.pick(c.k(1), c.k(0), c.test(how, a, b)) }
