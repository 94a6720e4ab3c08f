package program

import (
	"math"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// fold computes what is constant, and leaves out what changes nothing. Constants are scalars,
// repeated where they are read. Nothing here changes what becomes of NaN and infinities: x·0 stays
// a product.
func fold(u *Unit) bool {
	return u.rewrite(func(r *rewriting, i Inst) (Value, bool) {
		switch op := i.Instr.(type) {
		case kernels.Fill:
			if len(op.Type.Shape) > 0 {
				return r.filled(op.Type, op.C)
			}
		case kernels.Unary:
			return r.foldUnary(op, i.In[0])
		case kernels.Binary:
			return r.foldBinary(op, i.In[0], i.In[1])
		case kernels.Cast:
			return r.foldCast(op, i.In[0])
		case kernels.Reduce:
			return r.foldReduce(op, i.In[0])
		}
		return r.foldMove(i)
	})
}

// filled is c, repeated.
func (r *rewriting) filled(t kernels.Type, c float64) (Value, bool) {
	v, ok := r.apply(kernels.Fill{Type: kernels.Type{Dtype: t.Dtype, Shape: device.Shape{}}, C: c})
	if !ok || len(t.Shape) == 0 {
		return v, ok
	}
	return r.apply(kernels.BroadcastTo{Shape: t.Shape}, v)
}

// constant is the one number that v consists of, as it is in v's dtype. Integers are no constants
// here.
func (r *rewriting) constant(v Value) (float64, bool) {
	for {
		switch i := r.made(v); op := i.Instr.(type) {
		case kernels.Fill:
			return rounded(op.Type.Dtype, op.C), op.Type.Dtype.IsFloat()
		case kernels.BroadcastTo, kernels.Reshape:
			v = i.In[0]
		default:
			return 0, false
		}
	}
}

// rounded is the nearest number of a float dtype.
func rounded(d device.Dtype, c float64) float64 {
	if d == device.Float32 {
		return float64(float32(c))
	}
	return c
}

func (r *rewriting) foldUnary(op kernels.Unary, x Value) (Value, bool) {
	t := r.Types[x]
	if c, ok := r.constant(x); ok {
		if y, ok := constantUnary(op, c, t.Dtype); ok {
			return r.filled(t, y)
		}
	}
	inner, y, chained := from[kernels.Unary](r, x)
	switch {
	case op.Fn == kernels.Scale && op.C == 1, op.Fn == kernels.Shift && op.C == 0:
		return x, true
	case op.Fn == kernels.Scale && op.C == -1:
		return r.apply(kernels.Unary{Fn: kernels.Neg}, x)
	case !chained:
	case op.Fn == kernels.Neg && inner.Fn == kernels.Neg, op.Fn == kernels.Relu && inner.Fn == kernels.Relu:
		if op.Fn == kernels.Neg {
			return y, true
		}
		return x, true
	case op.Fn == kernels.Neg && inner.Fn == kernels.Scale:
		return r.apply(kernels.Unary{Fn: kernels.Scale, C: -inner.C}, y)
	case op.Fn == kernels.Scale && inner.Fn == kernels.Neg:
		return r.apply(kernels.Unary{Fn: kernels.Scale, C: -op.C}, y)
	case op.Fn == kernels.Scale && inner.Fn == kernels.Scale && oneScale(t.Dtype, op.C, inner.C):
		return r.apply(kernels.Unary{Fn: kernels.Scale, C: rounded(t.Dtype, op.C) * rounded(t.Dtype, inner.C)}, y)
	}
	if to, y, ok := from[kernels.BroadcastTo](r, x); ok {
		return r.then(op, to, y)
	}
	return 0, false
}

// oneScale says whether x·a·b is finite where x·(a·b) is: both grow or both shrink, and the product
// is a normal number.
func oneScale(d device.Dtype, a, b float64) bool {
	least, most := 0x1p-1022, math.MaxFloat64
	if d == device.Float32 {
		least, most = 0x1p-126, math.MaxFloat32
	}
	a, b = math.Abs(rounded(d, a)), math.Abs(rounded(d, b))
	return (a >= 1 && b >= 1 || a <= 1 && b <= 1) && a*b >= least && a*b <= most
}

// constantUnary computes the functions whose result is exact on every device.
func constantUnary(op kernels.Unary, x float64, d device.Dtype) (float64, bool) {
	var y float64
	switch op.Fn {
	case kernels.Neg:
		y = -x
	case kernels.Sqrt:
		y = math.Sqrt(x)
	case kernels.Relu:
		if y = x; x < 0 {
			y = 0
		}
	case kernels.Scale:
		y = x * rounded(d, op.C)
	case kernels.Shift:
		y = x + rounded(d, op.C)
	default:
		return 0, false
	}
	return rounded(d, y), true
}

func constantBinary(fn kernels.BinaryFn, a, b float64, d device.Dtype) (float64, bool) {
	var y float64
	switch fn {
	case kernels.Add:
		y = a + b
	case kernels.Sub:
		y = a - b
	case kernels.Mul:
		y = a * b
	case kernels.Div:
		y = a / b
	default:
		return 0, false
	}
	return rounded(d, y), true // float64 has room enough: rounding twice is rounding once
}

func (r *rewriting) foldBinary(op kernels.Binary, a, b Value) (Value, bool) {
	out, err := op.Infer(r.typesOf([]Value{a, b}))
	if err != nil {
		return 0, false
	}
	t := out[0]
	ca, constA := r.constant(a)
	cb, constB := r.constant(b)
	if constA && constB {
		if y, ok := constantBinary(op.Fn, ca, cb, t.Dtype); ok {
			return r.filled(t, y)
		}
	}
	switch {
	case constB && !constA:
		if i, ok := withConstant(op.Fn, cb); ok {
			return r.widened(i, a, t.Shape)
		}
	case constA && !constB && (op.Fn == kernels.Add || op.Fn == kernels.Mul):
		i, _ := withConstant(op.Fn, ca)
		return r.widened(i, b, t.Shape)
	case constA && !constB && op.Fn == kernels.Sub:
		if v, ok := r.then(kernels.Unary{Fn: kernels.Neg}, kernels.Unary{Fn: kernels.Shift, C: ca}, b); ok {
			return r.broadcast(v, t.Shape)
		}
	}
	if v, ok := r.foldSigns(op.Fn, a, b); ok {
		return v, true
	}
	if v, ok := r.joinPads(op.Fn, a, b); ok {
		return v, true
	}
	return r.sinkBroadcast(op, a, b, t.Shape)
}

// withConstant is x fn c as a function of x.
func withConstant(fn kernels.BinaryFn, c float64) (kernels.Unary, bool) {
	switch fn {
	case kernels.Add:
		return kernels.Unary{Fn: kernels.Shift, C: c}, true
	case kernels.Sub:
		return kernels.Unary{Fn: kernels.Shift, C: -c}, true
	case kernels.Mul:
		return kernels.Unary{Fn: kernels.Scale, C: c}, true
	case kernels.Div:
		// Only the inverse of a power of two is exact, and 1/c must not be denormal in either
		// dtype.
		if half, exp := math.Frexp(c); math.Abs(half) == 0.5 && exp > -100 && exp < 100 {
			return kernels.Unary{Fn: kernels.Scale, C: 1 / c}, true
		}
	}
	return kernels.Unary{}, false
}

// widened is a function of x, repeated until it has a shape.
func (r *rewriting) widened(i kernels.Unary, x Value, s device.Shape) (Value, bool) {
	v, ok := r.apply(i, x)
	if !ok {
		return 0, false
	}
	return r.broadcast(v, s)
}

// broadcast is x, repeated where its shape is not s.
func (r *rewriting) broadcast(x Value, s device.Shape) (Value, bool) {
	if r.shape(x).Equal(s) {
		return x, true
	}
	return r.apply(kernels.BroadcastTo{Shape: s}, x)
}

// foldSigns takes a Neg into a sum or a difference.
func (r *rewriting) foldSigns(fn kernels.BinaryFn, a, b Value) (Value, bool) {
	if fn != kernels.Add && fn != kernels.Sub {
		return 0, false
	}
	if i, y, ok := from[kernels.Unary](r, b); ok && i.Fn == kernels.Neg {
		opposite := kernels.Add
		if fn == kernels.Add {
			opposite = kernels.Sub
		}
		return r.apply(kernels.Binary{Fn: opposite}, a, y)
	}
	if i, x, ok := from[kernels.Unary](r, a); ok && i.Fn == kernels.Neg && fn == kernels.Add {
		return r.apply(kernels.Binary{Fn: kernels.Sub}, b, x)
	}
	return 0, false
}

// sinkBroadcast computes before it repeats: operands broadcast by themselves.
func (r *rewriting) sinkBroadcast(op kernels.Binary, a, b Value, s device.Shape) (Value, bool) {
	x, okA := r.unrepeated(a)
	y, okB := r.unrepeated(b)
	if !okA && !okB {
		return 0, false
	}
	v, ok := r.apply(op, x, y)
	if !ok {
		return 0, false
	}
	return r.broadcast(v, s)
}

// unrepeated is what a value repeats along axes that broadcasting gives it anyway, or has as axes
// of extent 1 before its own.
func (r *rewriting) unrepeated(v Value) (Value, bool) {
	if _, x, ok := from[kernels.BroadcastTo](r, v); ok {
		return x, true
	}
	to, x, ok := from[kernels.Reshape](r, v)
	if !ok || len(r.shape(x)) >= len(to.Shape) || !trimmed(to.Shape).Equal(trimmed(r.shape(x))) {
		return v, false
	}
	return x, true
}

// trimmed is a shape without the axes of extent 1 that it begins with.
func trimmed(s device.Shape) device.Shape {
	for len(s) > 0 && s[0] == 1 {
		s = s[1:]
	}
	return s
}

func (r *rewriting) foldCast(op kernels.Cast, x Value) (Value, bool) {
	if r.Types[x].Dtype == op.To {
		return x, true
	}
	if c, ok := r.constant(x); ok && op.To.IsFloat() {
		return r.filled(kernels.Type{Dtype: op.To, Shape: r.shape(x)}, rounded(op.To, c))
	}
	return 0, false
}
