package gen

import (
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/internal/stride"
)

// all is a nest over a whole operand, which is folded to one element of a dtype.
func all(x kernels.Type, d device.Dtype) (*nest, access) {
	n := &nest{dims: []int{x.Shape.Elems()}, ins: []access{{Param{In, 0, 0}, x.Dtype, []int{1}}},
		body: func(_ *emitter, in []string) []string { return in }}
	return n, access{Param{Out, 0, 0}, d, []int{0}}
}

// sumSquares folds x² onto a sum that there is.
func (w *writer) sumSquares(x kernels.Type) {
	n, to := all(x, device.Float64)
	g := sums(to)
	g.lift = func(e *emitter, v string) string {
		v = widen(e, v)
		return e.op("mul.rn.f64", v, v)
	}
	g.done = func(e *emitter, v string) string {
		before := e.reg("f64")
		e.line("ld.global.f64 %s, [%s];", before, e.global(Param{In, 1, 0}))
		return e.op("add.rn.f64", before, v)
	}
	n.folds = []folding{g}
	w.fold(n)
}

// nonFinite folds what each element is, a [kernels.Finiteness], to the greatest.
func (w *writer) nonFinite(x kernels.Type) {
	n, to := all(x, device.Int32)
	same := func(_ *emitter, v string) string { return v }
	n.folds = []folding{{to: to, acc: device.Int32, init: num(int(kernels.AllFinite)), done: same,
		lift: func(e *emitter, v string) string {
			c := calc{e, x.Dtype == device.Float64}
			finite, nan := c.test("lt", c.do("abs", v), c.inf()), c.test("nan", v, v)
			r := e.op("selp.b32", num(int(kernels.AllFinite)), num(int(kernels.HasInfinity)), finite)
			return e.op("selp.b32", num(int(kernels.HasNaN)), r, nan)
		},
		join: func(e *emitter, a, b string) string { return e.op("max.u32", a, b) },
	}}
	w.fold(n)
}

// maxGrad counts how many tie for each maximum, and then gives each its part of the gradient.
func (w *writer) maxGrad(i kernels.MaxGrad, in []kernels.Type, out kernels.Type) {
	d, s := computed(in[0].Dtype), in[0].Shape
	small, count := folded(kernels.Reduce{Axes: i.Axes}, s)
	results := 1
	if count > 0 {
		results = s.Elems() / count
	}
	x, y := access{Param{In, 0, 0}, in[0].Dtype, stride.RowMajor(s)}, access{Param{In, 1, 0}, in[1].Dtype, small}
	gy, ties := access{Param{In, 2, 0}, in[2].Dtype, small}, access{w.scratch(results * d.Size()), d, small}
	gx, double := access{Param{Out, 0, 0}, out.Dtype, x.st}, d == device.Float64
	is := func(c calc, x, y string) string {
		return c.op("or.pred", c.test("eq", x, y), c.op("and.pred", c.test("nan", x, x), c.test("nan", y, y)))
	}
	if count == 1 {
		w.parts(&nest{dims: s, ins: []access{x, y, gy}, outs: []access{gx}, body: func(e *emitter, in []string) []string {
			c := calc{e, double}
			return []string{c.pick(in[2], c.k(0), is(c, in[0], in[1]))}
		}})
		return
	}
	w.fold(&nest{dims: s, ins: []access{x, y}, folds: []folding{sums(ties)}, body: func(e *emitter, in []string) []string {
		c := calc{e, double}
		return []string{c.pick(c.k(1), c.k(0), is(c, in[0], in[1]))}
	}})
	w.parts(&nest{dims: s, ins: []access{x, y, gy, ties}, outs: []access{gx}, body: func(e *emitter, in []string) []string {
		c := calc{e, double}
		return []string{c.pick(c.do("div.rn", in[2], in[3]), c.k(0), is(c, in[0], in[1]))}
	}})
}
