package expr

import "github.com/weft-project/weft/kernels"

// flat says that the instruction's derivative is 0 wherever there is one, so that no gradient need
// pass.
func flat(i kernels.Instr) bool {
	switch i := i.(type) {
	case kernels.Unary:
		return i.Fn == kernels.Ceil || i.Fn == kernels.Floor
	case kernels.Binary:
		return i.Fn == kernels.Less || i.Fn == kernels.LessEqual || i.Fn == kernels.Equal
	}
	return false
}

// unaryRules give the gradient of the operand; c is the instruction's constant. Functions that are
// flat have none.
var unaryRules = [kernels.UnaryFns]func(v *vjp, c float64) node{
	kernels.Neg:     func(v *vjp, _ float64) node { return v.neg(v.gy) },
	kernels.Exp:     func(v *vjp, _ float64) node { return v.mul(v.gy, v.y) },
	kernels.Log:     func(v *vjp, _ float64) node { return v.div(v.gy, v.in[0]) },
	kernels.Sqrt:    func(v *vjp, _ float64) node { return v.div(v.gy, v.scale(v.y, 2)) },
	kernels.Tanh:    func(v *vjp, _ float64) node { return v.binary(kernels.TanhGrad, v.y, v.gy) },
	kernels.Sigmoid: func(v *vjp, _ float64) node { return v.binary(kernels.SigmoidGrad, v.y, v.gy) },
	// y is positive, or NaN, where x is, and is kept anyway by whatever reads it.
	kernels.Relu:  func(v *vjp, _ float64) node { return v.where(v.y, v.gy) },
	kernels.Gelu:  func(v *vjp, _ float64) node { return v.binary(kernels.GeluGrad, v.in[0], v.gy) },
	kernels.Scale: func(v *vjp, c float64) node { return v.scale(v.gy, c) },
	kernels.Shift: func(v *vjp, _ float64) node { return v.gy },
	kernels.Abs: func(v *vjp, _ float64) node {
		return v.sub(v.where(v.in[0], v.gy), v.where(v.neg(v.in[0]), v.gy))
	},
	kernels.Sin:   func(v *vjp, _ float64) node { return v.mul(v.gy, v.unary(kernels.Cos, v.in[0])) },
	kernels.Cos:   func(v *vjp, _ float64) node { return v.neg(v.mul(v.gy, v.unary(kernels.Sin, v.in[0]))) },
	kernels.Log1p: func(v *vjp, _ float64) node { return v.div(v.gy, v.shift(v.in[0], 1)) },
	kernels.Expm1: func(v *vjp, _ float64) node { return v.mul(v.gy, v.shift(v.y, 1)) },
	kernels.Softplus: func(v *vjp, _ float64) node {
		return v.mul(v.gy, v.unary(kernels.Sigmoid, v.in[0]))
	},
	kernels.Softsign: func(v *vjp, _ float64) node { // a square would overflow
		d := v.shift(v.unary(kernels.Abs, v.in[0]), 1)
		return v.div(v.div(v.gy, d), d)
	},
}

// binaryRules has no entry for the functions that are gradients themselves.
var binaryRules = map[kernels.BinaryFn]rule{
	kernels.Add: func(v *vjp) []node { return []node{v.gy, v.gy} },
	kernels.Sub: func(v *vjp) []node {
		d := []node{v.gy, nil}
		if v.need[1] {
			d[1] = v.neg(v.gy)
		}
		return d
	},
	kernels.Mul: func(v *vjp) []node {
		d := make([]node, 2)
		for j := range 2 {
			if v.need[j] {
				d[j] = v.mul(v.gy, v.in[1-j])
			}
		}
		return d
	},
	kernels.Div: func(v *vjp) []node {
		d := make([]node, 2)
		if v.need[0] {
			d[0] = v.div(v.gy, v.in[1])
		}
		if v.need[1] { // −gy·(y/b): y, which is 0 where a is, makes 1/b small where that would overflow
			d[1] = v.neg(v.mul(v.gy, v.div(v.y, v.in[1])))
		}
		return d
	},
	kernels.Pow:     powRule,
	kernels.Maximum: chosenRule(func(v *vjp, one, other node) node { return v.binary(kernels.Less, one, other) }),
	kernels.Minimum: chosenRule(func(v *vjp, one, other node) node { return v.binary(kernels.Less, other, one) }),
}

// powRule: b·a^(b−1), and 0 where b is 0; y·log(a), and 0 where a is 0 and b is not negative. There
// a^b is constant.
func powRule(v *vjp) []node {
	a, b, d := v.in[0], v.in[1], make([]node, 2)
	if v.need[0] {
		d[0] = v.unless(v.equal(b, v.zero(b)), v.mul(v.gy, v.mul(b, v.binary(kernels.Pow, a, v.shift(b, -1)))))
	}
	if v.need[1] {
		constant := v.mul(v.equal(a, v.zero(a)), v.binary(kernels.LessEqual, v.zero(b), b))
		d[1] = v.unless(constant, v.mul(v.gy, v.mul(v.y, v.unary(kernels.Log, a))))
	}
	return d
}

// chosenRule is of Maximum and Minimum: loses says where the one is not the result. NaN loses to
// nothing, and equals nothing.
func chosenRule(loses func(v *vjp, one, other node) node) rule {
	return func(v *vjp) []node {
		d, tie := make([]node, 2), v.equal(v.in[0], v.in[1])
		shared := v.mul(v.gy, v.shift(v.scale(tie, -0.5), 1))
		for j := range d {
			if v.need[j] {
				d[j] = v.unless(loses(v, v.in[j], v.in[1-j]), shared)
			}
		}
		return d
	}
}

// unless is x where is, of ones and zeros, is 0; and 0 elsewhere. A product with a mask would make
// NaN of what is infinite there.
func (v *vjp) unless(is, x node) node {
	return v.where(v.shift(v.neg(is), 1), x)
}

// where is x where positive is, or is NaN; and 0 elsewhere.
func (v *vjp) where(positive, x node) node {
	return v.Apply(kernels.Binary{Fn: kernels.ReluGrad}, positive, x)
}
