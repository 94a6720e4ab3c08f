package gen

import (
	"math"
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/internal/stride"
)

// mapping writes a map: a kernel for the folds over each set of axes, and what folds their parts;
// the last computes the other results too, as these may lie over operands.
func (w *writer) mapping(i kernels.Map, in, out []kernels.Type, views []*kernels.View) {
	var ins []access
	for k, t := range in {
		v := kernels.ViewOf(in, views, k)
		ins = append(ins, access{Param{In, k, v.Offset * t.Dtype.Size()}, t.Dtype, stride.Stretch(v.Strides, v.Shape, i.Shape)})
	}
	var passes []*pass
	full := &pass{}
	for k, o := range i.Outs {
		to := access{Param{Out, k, 0}, out[k].Dtype, stride.RowMajor(i.Shape)}
		if o.Fold == nil {
			full.outs, full.regs = append(full.outs, to), append(full.regs, o.Reg)
			continue
		}
		var count int
		to.st, count = folded(*o.Fold, i.Shape)
		if count == 1 { // every element is a result
			full.outs, full.regs = append(full.outs, to), append(full.regs, o.Reg)
			continue
		}
		at := slices.IndexFunc(passes, func(p *pass) bool { return sameAxes(p.folds[0].to.st, to.st, i.Shape) })
		if at < 0 {
			at = len(passes)
			passes = append(passes, &pass{})
		}
		p := passes[at]
		p.folds, p.folded = append(p.folds, folds(o.Fold.Fn, to, count)), append(p.folded, o.Reg)
	}
	if len(passes) == 0 {
		w.parts(full.nest(i, ins))
		return
	}
	last := passes[len(passes)-1]
	last.outs, last.regs = full.outs, full.regs
	for _, p := range passes {
		w.fold(p.nest(i, ins))
	}
}

// pass is what one kernel of a map makes.
type pass struct {
	outs         []access
	folds        []folding
	regs, folded []int // the registers that these are
}

// folded gives the strides of a fold's result over a shape, and how many elements fall to each
// result.
func folded(r kernels.Reduce, s device.Shape) (st []int, count int) {
	kept, count := s.Clone(), 1
	for k := range s {
		if r.Axes == nil || slices.Contains(r.Axes, k) {
			kept[k], count = 1, count*s[k]
		}
	}
	return stride.Broadcast(kept, s), count
}

// sameAxes says that two results fold the same axes.
func sameAxes(a, b []int, s device.Shape) bool {
	for k, n := range s {
		if n != 1 && (a[k] == 0) != (b[k] == 0) {
			return false
		}
	}
	return true
}

// nest is a pass over operands, of which it has those that it needs.
func (p *pass) nest(i kernels.Map, ins []access) *nest {
	steps, wanted := i.Steps, slices.Concat(p.regs, p.folded)
	need := make([]bool, len(ins)+len(steps))
	for _, r := range wanted {
		need[r] = true
	}
	for k := len(steps) - 1; k >= 0; k-- {
		if need[len(ins)+k] {
			for _, r := range args(steps[k]) {
				need[r] = true
			}
		}
	}
	n := &nest{dims: i.Shape, outs: p.outs, folds: p.folds}
	for k, a := range ins {
		if need[k] {
			n.ins = append(n.ins, a)
		}
	}
	for k, s := range steps {
		if need[len(ins)+k] {
			n.heavy += weight(s.Op)
		}
	}
	d := ins[0].dtype
	n.body = func(e *emitter, in []string) []string {
		regs, c := make([]string, len(need)), calc{e, d == device.Float64}
		for k := range need {
			switch {
			case !need[k]:
			case k < len(ins):
				regs[k], in = in[0], in[1:]
			default:
				s := steps[k-len(ins)]
				regs[k] = c.step(s.Op, regs[s.Args[0]], regs[args(s)[len(args(s))-1]])
			}
		}
		out := make([]string, len(wanted))
		for k, r := range wanted {
			out[k] = regs[r]
		}
		return out
	}
	return n
}

// args are the registers that a step reads.
func args(s kernels.Step) []int {
	if _, unary := s.Op.(kernels.Unary); unary {
		return s.Args[:1]
	}
	return s.Args[:]
}

// folds is a fold of floats: sums are float64, whatever their terms are.
func folds(fn kernels.ReduceFn, to access, count int) folding {
	if fn == kernels.Max {
		c := calc{nil, to.dtype == device.Float64}
		return folding{to: to, acc: computed(to.dtype), init: c.k(math.Inf(-1)),
			lift: func(_ *emitter, v string) string { return v },
			join: func(e *emitter, a, b string) string { return calc{e, c.double}.extreme("max", a, b) },
			done: func(_ *emitter, v string) string { return v }}
	}
	g := sums(to)
	if fn == kernels.Mean {
		g.done = func(e *emitter, v string) string {
			return narrow(e, e.op("div.rn.f64", v, f64(float64(count))), to.dtype)
		}
	}
	return g
}

// sums is a sum of floats.
func sums(to access) folding {
	return folding{to: to, acc: device.Float64, init: f64(0),
		lift: func(e *emitter, v string) string { return widen(e, v) },
		join: func(e *emitter, a, b string) string { return e.op("add.rn.f64", a, b) },
		done: func(e *emitter, v string) string { return narrow(e, v, to.dtype) }}
}

// widen makes a float a float64.
func widen(e *emitter, v string) string {
	if v[1] == 'd' {
		return v
	}
	return e.op("cvt.f64.f32", v)
}

// narrow makes a float64 what a result has.
func narrow(e *emitter, v string, d device.Dtype) string {
	if d == device.Float64 {
		return v
	}
	return e.op("cvt.rn.f32.f64", v)
}
