package gen

import (
	"fmt"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/stride"
)

// raw is the dtype by which elements of a size are moved: as they are.
func raw(d device.Dtype) device.Dtype {
	if d.Size() == 4 {
		return device.Int32
	}
	return device.Int64
}

// moves writes copies and zeros, side by side in one kernel but for those that swap axes.
func (w *writer) moves(i kernels.Instr, in []kernels.Type, out kernels.Type) error {
	of := i
	if v, ok := i.(kernels.Viewed); ok {
		of = v.Of
	}
	switch of.(type) {
	case kernels.BroadcastTo, kernels.Reshape, kernels.Transpose, kernels.Slice, kernels.Pad, kernels.Concat:
	default:
		return fmt.Errorf("%w: %v", ErrUnknown, i)
	}
	d := raw(out.Dtype)
	var straight []*nest
	for _, m := range kernels.Moves(i, in) {
		n := &nest{dims: m.To.Shape, outs: []access{{Param{Out, 0, m.To.Offset * d.Size()}, d, m.To.Strides}}}
		if m.In < 0 {
			n.body = func(e *emitter, _ []string) []string { return []string{e.op("mov."+bitsOf(d), "0")} }
		} else {
			n.ins = []access{{Param{In, m.In, m.From.Offset * d.Size()}, d, m.From.Strides}}
			n.body = func(_ *emitter, in []string) []string { return in }
		}
		if !w.swap(n) {
			straight = append(straight, n)
		}
	}
	w.parts(straight...)
	return nil
}

// cast converts every element.
func (w *writer) cast(x kernels.Type, to device.Dtype) {
	n := w.flat(to, x.Shape)
	n.ins = []access{{Param{In, 0, 0}, x.Dtype, stride.RowMajor(x.Shape)}}
	n.body = func(e *emitter, in []string) []string { return []string{convert(e, in[0], x.Dtype, to)} }
	w.parts(n)
}

// fill writes one value everywhere, converted as cast does.
func (w *writer) fill(i kernels.Fill) {
	n := w.flat(i.Type.Dtype, i.Type.Shape)
	n.body = func(e *emitter, _ []string) []string {
		return []string{convert(e, e.op("mov.f64", f64(i.C)), device.Float64, i.Type.Dtype)}
	}
	w.parts(n)
}

// flat is a nest with one contiguous result.
func (w *writer) flat(d device.Dtype, s device.Shape) *nest {
	return &nest{dims: s, outs: []access{{Param{Out, 0, 0}, d, stride.RowMajor(s)}}}
}

// convert is an element of another dtype, as [kernels.Cast] has it.
func convert(e *emitter, v string, from, to device.Dtype) string {
	op := "cvt"
	switch {
	case from == to:
		return v
	case from.IsFloat() && !to.IsFloat(): // it saturates; of NaN not all hardware makes 0
		r := e.op("cvt.rzi."+typeOf(to)+"."+typeOf(from), v)
		return e.op("selp."+bitsOf(to), "0", r, e.op("setp.nan."+typeOf(from), v, v))
	case to == device.Float32, to == device.Float64 && !from.IsFloat():
		op = "cvt.rn"
	}
	return e.op(op+"."+typeOf(to)+"."+typeOf(from), v)
}
