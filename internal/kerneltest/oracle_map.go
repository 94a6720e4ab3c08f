package kerneltest

import (
	"math"
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// about is a number, and how far from it a computed one may be.
type about struct{ v, slack float64 }

// mapped is Oracle for maps: every register of every element, rounded, with bounds of the error
// that the steps before pass on. Elements of the first operand may be off by what first says, where
// that is not nil.
//
//go:norace
func mapped(i kernels.Map, in []Tensor, first []float64, out []kernels.Type) ([]Tensor, [][]float64) {
	res, slack := make([]Tensor, len(out)), make([][]float64, len(out))
	groups := make([][]about, len(out))
	for k, t := range out {
		res[k] = Tensor{t, make([]float64, t.Shape.Elems())}
		slack[k] = make([]float64, t.Shape.Elems())
		groups[k] = make([]about, t.Shape.Elems())
		if f := i.Outs[k].Fold; f != nil && f.Fn == kernels.Max {
			for n := range groups[k] {
				groups[k][n].v = math.Inf(-1)
			}
		}
	}
	n := i.Shape.Elems()
	for flat := range n {
		idx := index(flat, i.Shape)
		off := 0.0
		if first != nil {
			off = first[flat]
		}
		regs := registers(i, in, off, idx)
		for k, o := range i.Outs {
			r := regs[o.Reg]
			if o.Fold == nil {
				groups[k][flat] = r
				continue
			}
			g := &groups[k][flatIndex(resultIndex(len(idx), o.Fold.Axes, o.Fold.Keep, idx), out[k].Shape)]
			if o.Fold.Fn == kernels.Max {
				*g = about{max(g.v, r.v), max(g.slack, r.slack)}
			} else {
				*g = about{g.v + r.v, g.slack + r.slack}
			}
		}
	}
	for k, o := range i.Outs {
		for at, g := range groups[k] {
			if o.Fold != nil && o.Fold.Fn == kernels.Mean {
				g.v /= float64(n / len(groups[k]))
			}
			res[k].V[at], slack[k][at] = round(out[k].Dtype, g.v), g.slack
		}
	}
	return res, slack
}

//go:norace
func flatIndex(idx, shape []int) int {
	flat := 0
	for k, n := range shape {
		flat = flat*n + idx[k]
	}
	return flat
}

// registers are a map's for one element.
//
//go:norace
func registers(i kernels.Map, in []Tensor, first float64, idx []int) []about {
	d := in[0].Dtype
	var regs []about
	for _, x := range in {
		regs = append(regs, about{x.at(idx), 0})
	}
	regs[0].slack = first
	for _, s := range i.Steps {
		a, b := regs[s.Args[0]], about{}
		one, _ := s.Op.(kernels.Unary)
		fn := func(a, _ float64) float64 { return unary(one, a) }
		if op, ok := s.Op.(kernels.Binary); ok {
			b = regs[s.Args[1]]
			fn = func(a, b float64) float64 { return binary(op.Fn, a, b) }
		}
		v := fn(a.v, b.v)
		r := about{round(d, v), 0}
		if a.slack > 0 || b.slack > 0 || !exact(s.Op, v) {
			if r.slack = reach(fn, a, b, v); v == v {
				r.slack += tolerance(d) * (1 + math.Abs(v))
			}
		}
		if one.Fn == kernels.Sin || one.Fn == kernels.Cos { // between corners too they may be anywhere
			r.slack += min(2, a.slack)
		}
		if s.Op == (kernels.Binary{Fn: kernels.Pow}) && a.v-a.slack < 0 && b.slack > 0 { // a number only where the exponent is whole
			r.slack = math.Inf(1)
		}
		if !inside(d, a.v) || !inside(d, b.v) || math.IsInf(a.slack+b.slack, 1) {
			r.slack = math.Inf(1)
		}
		regs = append(regs, r)
	}
	return regs
}

// exact says that a step of exact operands gives exactly v in any precision.
func exact(op kernels.Instr, v float64) bool {
	switch op {
	case kernels.Unary{Fn: kernels.Neg}, kernels.Unary{Fn: kernels.Abs}, kernels.Unary{Fn: kernels.Relu}, kernels.Binary{Fn: kernels.ReluGrad},
		kernels.Binary{Fn: kernels.Maximum}, kernels.Binary{Fn: kernels.Minimum}, kernels.Binary{Fn: kernels.Less},
		kernels.Binary{Fn: kernels.LessEqual}, kernels.Binary{Fn: kernels.Equal}:
		return true
	case kernels.Binary{Fn: kernels.Add}, kernels.Binary{Fn: kernels.Sub}, kernels.Binary{Fn: kernels.Mul}:
		return v == math.Trunc(v) && math.Abs(v) < 1<<20
	}
	return false
}

// inside says that products of a few such numbers do not overflow.
func inside(d device.Dtype, v float64) bool {
	most := 1e100
	if d == device.Float32 {
		most = 1e12
	}
	return !(math.Abs(v) > most) || math.IsInf(v, 0)
}

// reach is how far fn is from v at the corners of what its operands may be: infinitely far where it
// may be no number, or cease to be one.
//
//go:norace
func reach(fn func(a, b float64) float64, a, b about, v float64) float64 {
	far := 0.0
	for _, da := range []float64{-a.slack, 0, a.slack} {
		for _, db := range []float64{-b.slack, 0, b.slack} {
			w := fn(a.v+da, b.v+db)
			switch d := math.Abs(w - v); {
			case w == v || w != w && v != v:
			case d != d:
				return math.Inf(1)
			default:
				far = max(far, d)
			}
		}
	}
	return far
}

// product is the matrix product that a map follows.
func product(i kernels.MatMulThen, in []Tensor) Tensor {
	return build(kernels.Type{Dtype: in[0].Dtype, Shape: i.Then.Shape}, func(idx []int) float64 { return dot(i.MatMul, in[0], in[1], idx) })
}

// productSlack is by how much the elements of a product may be off: not at all where they are sums
// of small integers.
//
//go:norace
func productSlack(c Tensor) []float64 {
	slack := make([]float64, len(c.V))
	for k, v := range c.V {
		c.V[k] = round(c.Dtype, v)
		if v != math.Trunc(v) || math.Abs(v) > 1<<20 {
			slack[k] = inProducts * tolerance(c.Dtype) * (1 + math.Abs(v))
		}
	}
	return slack
}

// seen is what a view of a tensor shows.
func seen(x Tensor, v *kernels.View) Tensor {
	if v == nil {
		return x
	}
	return build(kernels.Type{Dtype: x.Dtype, Shape: v.Shape}, func(idx []int) float64 {
		at := v.Offset
		for k, st := range v.Strides {
			at += idx[k] * st
		}
		return x.V[at]
	})
}

// seenThrough is what an instruction sees of its operands.
func seenThrough(views []*kernels.View, in []Tensor) []Tensor {
	in = slices.Clone(in)
	for k, v := range views {
		in[k] = seen(in[k], v)
	}
	return in
}
