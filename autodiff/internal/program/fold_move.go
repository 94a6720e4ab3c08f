package program

import (
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// foldMove leaves out moves that move nothing, and joins moves of moves.
func (r *rewriting) foldMove(i Inst) (Value, bool) {
	if len(i.In) == 0 {
		return 0, false
	}
	x := i.In[0]
	s := r.shape(x)
	switch op := i.Instr.(type) {
	case kernels.BroadcastTo:
		switch {
		case op.Shape.Equal(s):
			return x, true
		case op.Shape.Elems() == s.Elems():
			return r.apply(kernels.Reshape{Shape: op.Shape}, x)
		}
		if _, y, ok := from[kernels.BroadcastTo](r, x); ok {
			return r.apply(op, y)
		}
	case kernels.Reshape:
		if op.Shape.Equal(s) {
			return x, true
		}
		if _, y, ok := from[kernels.Reshape](r, x); ok {
			return r.apply(op, y)
		}
		if _, y, ok := from[kernels.BroadcastTo](r, x); ok && len(r.shape(y)) == 0 {
			return r.apply(kernels.BroadcastTo{Shape: op.Shape}, y)
		}
	case kernels.Transpose:
		return r.foldTranspose(op, x)
	case kernels.Slice:
		if op.Start == 0 && op.Stop == s[op.Axis] {
			return x, true
		}
		return r.foldSlice(op, x)
	case kernels.Pad:
		if op.Before == 0 && op.After == 0 {
			return x, true
		}
		if inner, y, ok := from[kernels.Pad](r, x); ok && inner.Axis == op.Axis {
			return r.apply(kernels.Pad{Axis: op.Axis, Before: op.Before + inner.Before, After: op.After + inner.After}, y)
		}
	case kernels.Concat:
		return r.foldConcat(op, i.In)
	}
	return 0, false
}

func (r *rewriting) foldTranspose(op kernels.Transpose, x Value) (Value, bool) {
	s := r.shape(x)
	if inner, y, ok := from[kernels.Transpose](r, x); ok {
		perm := make([]int, len(op.Perm))
		for k, p := range op.Perm {
			perm[k] = inner.Perm[p]
		}
		return r.apply(kernels.Transpose{Perm: perm}, y)
	}
	// Axes of extent 1 may go anywhere.
	moved, last := false, -1
	to := make(device.Shape, len(s))
	for k, p := range op.Perm {
		to[k] = s[p]
		if s[p] != 1 {
			moved = moved || p < last
			last = p
		}
	}
	if !moved || s.Elems() == 0 {
		return r.apply(kernels.Reshape{Shape: to}, x)
	}
	if _, y, ok := from[kernels.BroadcastTo](r, x); ok && len(r.shape(y)) == 0 {
		return r.apply(kernels.BroadcastTo{Shape: to}, y)
	}
	return 0, false
}

func (r *rewriting) foldSlice(op kernels.Slice, x Value) (Value, bool) {
	m := r.made(x)
	switch of := m.Instr.(type) {
	case kernels.Slice:
		if of.Axis == op.Axis {
			return r.apply(kernels.Slice{Axis: op.Axis, Start: op.Start + of.Start, Stop: op.Stop + of.Start}, m.In[0])
		}
	case kernels.Pad:
		n := r.shape(m.In[0])[op.Axis]
		if of.Axis == op.Axis && op.Start >= of.Before && op.Stop <= of.Before+n {
			return r.apply(kernels.Slice{Axis: op.Axis, Start: op.Start - of.Before, Stop: op.Stop - of.Before}, m.In[0])
		}
	case kernels.Concat:
		if of.Axis != op.Axis || len(m.In) > maxPieces {
			return 0, false
		}
		at := 0
		for _, y := range m.In {
			n := r.shape(y)[op.Axis]
			if op.Start >= at && op.Stop <= at+n {
				return r.apply(kernels.Slice{Axis: op.Axis, Start: op.Start - at, Stop: op.Stop - at}, y)
			}
			at += n
		}
	case kernels.BroadcastTo:
		s := of.Shape.Clone()
		y := r.shape(m.In[0])
		s[op.Axis] = op.Stop - op.Start
		if k := op.Axis - (len(s) - len(y)); k < 0 || y[k] == 1 {
			return r.apply(kernels.BroadcastTo{Shape: s}, m.In[0])
		}
	}
	return 0, false
}

// maxPieces bounds how many operands of a Concat are looked through, so that time stays linear.
const maxPieces = 256

func (r *rewriting) foldConcat(op kernels.Concat, in []Value) (Value, bool) {
	if len(in) == 1 {
		return in[0], true
	}
	var parts []Value
	changed := false
	for _, v := range in {
		inner, _, ok := from[kernels.Concat](r, v)
		switch {
		case ok && inner.Axis == op.Axis && len(parts)+len(r.made(v).In) <= maxPieces:
			parts, changed = append(parts, r.made(v).In...), true
		case r.shape(v)[op.Axis] == 0:
			changed = true
		default:
			parts = append(parts, v)
		}
	}
	if whole, ok := r.slicedWhole(op.Axis, parts); ok {
		return whole, true
	}
	if v, ok := r.joinedGradients(op, parts); ok {
		return v, true
	}
	if !changed || len(parts) == 0 {
		return 0, false
	}
	return r.apply(op, parts...)
}

// slicedWhole finds the value that parts are all of, cut along an axis.
func (r *rewriting) slicedWhole(axis int, parts []Value) (whole Value, ok bool) {
	at := 0
	for k, v := range parts {
		i, x, ok := from[kernels.Slice](r, v)
		if !ok || i.Axis != axis || i.Start != at || k > 0 && x != whole {
			return 0, false
		}
		whole, at = x, i.Stop
	}
	return whole, len(parts) > 0 && at == r.shape(whole)[axis]
}

// foldReduce gives a reduction its plainest form: axes in order, not kept (a reshape keeps them),
// nil for all.
func (r *rewriting) foldReduce(op kernels.Reduce, x Value) (Value, bool) {
	s := r.shape(x)
	plain := kernels.Reduce{Fn: op.Fn, Axes: reducedAxes(op.Axes, len(s))}
	long := false
	for k, n := range s {
		long = long || n != 1 && (plain.Axes == nil || slices.Contains(plain.Axes, k))
	}
	out, err := op.Infer([]kernels.Type{r.Types[x]})
	if err != nil {
		return 0, false
	}
	if !long { // one element each
		return r.apply(kernels.Reshape{Shape: out[0].Shape}, x)
	}
	if plain.Axes == nil { // in whatever order
		switch m := r.made(x); m.Instr.(type) {
		case kernels.Reshape, kernels.Transpose:
			plain, x = kernels.Reduce{Fn: op.Fn}, m.In[0]
			return r.reduced(plain, x, out[0].Shape)
		}
	}
	if op.Keep || (op.Axes == nil) != (plain.Axes == nil) || !slices.Equal(op.Axes, plain.Axes) {
		return r.reduced(plain, x, out[0].Shape)
	}
	return 0, false
}

func (r *rewriting) reduced(op kernels.Reduce, x Value, s device.Shape) (Value, bool) {
	return r.then(op, kernels.Reshape{Shape: s}, x)
}

// reducedAxes is the axes in order, nil for all.
func reducedAxes(axes []int, rank int) []int {
	if axes == nil || len(axes) == rank {
		return nil
	}
	axes = append([]int{}, axes...) // never nil
	slices.Sort(axes)
	return axes
}
