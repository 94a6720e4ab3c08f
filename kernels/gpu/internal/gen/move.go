package gen

import (
	"fmt"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/internal/stride"
)

// raw is the dtype by which elements of a size are moved: as they are.
func raw(d device.Dtype) device.Dtype {
	switch d.Size() {
	case 4:
		return device.Int32
	case 8:
		return device.Int64
	}
	return d
}

// moves writes copies and zeros, side by side in one kernel but for those that swap axes. Bits stay
// as they are but where float32 becomes bfloat16.
func (w *writer) moves(i kernels.Instr, in []kernels.Type, out kernels.Type) error {
	switch kernels.Unviewed(i).(type) {
	case kernels.BroadcastTo, kernels.Reshape, kernels.Transpose, kernels.Slice, kernels.Pad, kernels.Concat:
	default:
		return fmt.Errorf("%w: %v", ErrUnknown, i)
	}
	d := raw(out.Dtype)
	var straight []*nest
	for _, m := range kernels.Moves(i, kernels.Widened(in)) {
		n := &nest{dims: m.To.Shape, bits: true, outs: []access{{Param{Out, 0, m.To.Offset * d.Size()}, d, m.To.Strides}}}
		if m.In < 0 {
			n.body = func(e *emitter, _ []string) []string { return []string{e.op("mov."+bitsOf(d), "0")} }
		} else {
			from := raw(in[m.In].Dtype)
			if from != d && d == device.BFloat16 { // which rounds numbers
				from, n.bits = in[m.In].Dtype, false
			}
			n.ins = []access{{Param{In, m.In, m.From.Offset * from.Size()}, from, m.From.Strides}}
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
func (w *writer) cast(x, to kernels.Type) {
	n := w.flat(to)
	n.ins = []access{{Param{In, 0, 0}, x.Dtype, stride.RowMajor(x.Shape)}}
	n.body = func(e *emitter, in []string) []string {
		return []string{convert(e, in[0], computed(x.Dtype), computed(to.Dtype))}
	}
	w.parts(n)
}

// fill writes one value everywhere, converted as cast does.
func (w *writer) fill(i kernels.Fill, to kernels.Type) {
	n := w.flat(to)
	n.body = func(e *emitter, _ []string) []string {
		return []string{convert(e, e.op("mov.f64", f64(i.C)), device.Float64, i.Type.Dtype)}
	}
	w.parts(n)
}

// flat is a nest with one contiguous result.
func (w *writer) flat(to kernels.Type) *nest {
	return &nest{dims: to.Shape, outs: []access{{Param{Out, 0, 0}, to.Dtype, stride.RowMajor(to.Shape)}}}
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
