package program

import "github.com/weft-project/weft/kernels"

// joinPads makes a Concat of a sum of neighbours: of tensors that fill different parts of an axis,
// with zeros around them. Such are the gradients of slices.
func (r *rewriting) joinPads(fn kernels.BinaryFn, a, b Value) (Value, bool) {
	if fn != kernels.Add || !r.shape(a).Equal(r.shape(b)) {
		return 0, false
	}
	if v, ok := r.joinTwo(a, b); ok {
		return v, true
	}
	// (p + q) + s, where s lies between or beside them.
	for range 2 {
		if i, p, ok := from[kernels.Binary](r, a); ok && i.Fn == kernels.Add {
			q := r.made(a).In[1]
			for range 2 {
				if v, ok := r.joinTwo(p, b); ok && r.isPadOf(q, p) {
					return r.apply(i, v, q)
				}
				p, q = q, p
			}
		}
		a, b = b, a
	}
	return 0, false
}

// isPadOf says whether two values are pads along one axis.
func (r *rewriting) isPadOf(q, p Value) bool {
	i, _, okQ := from[kernels.Pad](r, q)
	j, _, okP := from[kernels.Pad](r, p)
	return okQ && okP && i.Axis == j.Axis && r.shape(p).Equal(r.shape(q))
}

// joinTwo joins two pads that touch.
func (r *rewriting) joinTwo(a, b Value) (Value, bool) {
	p, x, okA := from[kernels.Pad](r, a)
	q, y, okB := from[kernels.Pad](r, b)
	if !okA || !okB || p.Axis != q.Axis || !r.shape(a).Equal(r.shape(b)) {
		return 0, false
	}
	n, m := r.shape(x)[p.Axis], r.shape(y)[q.Axis]
	switch {
	case p.Before+n == q.Before:
	case q.Before+m == p.Before:
		p, q, x, y = q, p, y, x
	default:
		return 0, false
	}
	v, ok := r.apply(kernels.Concat{Axis: p.Axis}, x, y)
	if !ok {
		return 0, false
	}
	return r.apply(kernels.Pad{Axis: p.Axis, Before: p.Before, After: q.After}, v)
}
