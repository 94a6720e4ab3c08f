package program

import (
	"math"
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// layout moves transposes and reshapes out of the way: into the flags of products, and behind what
// is computed element by element, so that it stands next to what made its operand. Reshapes cost
// nothing and transposes may meet a product, or each other.
func layout(u *Unit) bool {
	return u.rewrite(func(r *rewriting, i Inst) (Value, bool) {
		switch op := i.Instr.(type) {
		case kernels.MatMul:
			return r.transposedProduct(op, i.In)
		case kernels.Transpose:
			return r.productTransposed(op, i.In[0])
		case kernels.Slice:
			return r.productSliced(op, i.In[0])
		case kernels.Concat:
			return r.joinedBefore(op, i.In)
		case kernels.Unary:
			if v, ok := r.scaledBefore(op, i.In[0]); ok {
				return v, true
			}
			return r.afterMoves(i)
		case kernels.Binary:
			return r.afterMoves(i)
		case kernels.Reduce:
			if v, ok := r.tallProduct(op, i.In[0]); ok {
				return v, true
			}
			return r.reduceMoved(op, i.In[0])
		}
		return 0, false
	})
}

// transposedProduct takes transposes of the last two axes into the flags, and repeats no operand
// for a batch.
func (r *rewriting) transposedProduct(op kernels.MatMul, in []Value) (Value, bool) {
	in = slices.Clone(in)
	changed := false
	for k, trans := range []*bool{&op.TransA, &op.TransB} {
		if t, x, ok := from[kernels.Transpose](r, in[k]); ok && lastTwo(t.Perm) {
			in[k], *trans, changed = x, !*trans, true
		}
	}
	if !changed {
		return 0, false
	}
	return r.apply(op, in...)
}

// lastTwo says whether a permutation swaps the last two axes and nothing else.
func lastTwo(perm []int) bool {
	n := len(perm)
	for k, p := range perm {
		want := k
		if k >= n-2 {
			want = 2*n - 3 - k
		}
		if p != want {
			return false
		}
	}
	return n >= 2
}

// tallProduct makes one product of a sum of products over a batch, Σ aᵀ·b: the rows of all matrices
// are one tall matrix. Such are the gradients of weights.
func (r *rewriting) tallProduct(op kernels.Reduce, c Value) (Value, bool) {
	p, a, ok := from[kernels.MatMul](r, c)
	if !ok || !p.TransA || p.TransB || op.Fn != kernels.Sum || !r.alone(c) {
		return 0, false
	}
	b := r.made(c).In[1]
	sa, sb := r.shape(a), r.shape(b)
	n := len(sa)
	if n < 3 || !leading(op.Axes, n-2) || !sa[:n-1].Equal(sb[:len(sb)-1]) {
		return 0, false
	}
	flat := func(v Value, s device.Shape) (Value, bool) {
		return r.apply(kernels.Reshape{Shape: device.Shape{s[:n-1].Elems(), s[n-1]}}, v)
	}
	a, okA := flat(a, sa)
	b, okB := flat(b, sb)
	if !okA || !okB {
		return 0, false
	}
	v, ok := r.apply(p, a, b)
	if !ok || !op.Keep {
		return v, ok
	}
	return r.apply(kernels.Reshape{Shape: append(slices.Repeat(device.Shape{1}, n-2), r.shape(v)...)}, v)
}

// leading says whether axes are 0 … n−1.
func leading(axes []int, n int) bool {
	for k, a := range axes {
		if a != k {
			return false
		}
	}
	return axes != nil && len(axes) == n
}

// elementwise says whether an instruction computes element by element, or is a product, which may
// have something done to it as it is stored.
func elementwise(i kernels.Instr) bool {
	switch i.(type) {
	case kernels.Unary, kernels.Binary, kernels.MatMul:
		return true
	}
	return false
}

// productTransposed multiplies the other way round where the rows of a product become its last
// axis: (a·b)ᵀ = bᵀ·aᵀ.
func (r *rewriting) productTransposed(op kernels.Transpose, c Value) (Value, bool) {
	p, a, ok := from[kernels.MatMul](r, c)
	n := len(op.Perm)
	if !ok || op.Perm[n-1] != n-2 || !r.alone(c) {
		return 0, false
	}
	v, ok := r.apply(kernels.MatMul{TransA: !p.TransB, TransB: !p.TransA}, r.made(c).In[1], a)
	if !ok {
		return 0, false
	}
	perm := slices.Clone(op.Perm)
	perm[slices.Index(perm, n-1)], perm[n-1] = n-2, n-1
	return r.apply(kernels.Transpose{Perm: perm}, v)
}

// productSliced makes only those rows of a product that are wanted. Where rows were added to its
// operand, for the sake of the units that multiply, they stay.
func (r *rewriting) productSliced(op kernels.Slice, c Value) (Value, bool) {
	p, a, ok := from[kernels.MatMul](r, c)
	s := r.shape(c)
	if !ok || op.Axis != len(s)-2 || len(r.shape(a)) != len(s) || !r.alone(c) {
		return 0, false
	}
	if _, _, padded := from[kernels.Pad](r, a); padded {
		return 0, false
	}
	if p.TransA {
		op.Axis++
	}
	rows, ok := r.apply(op, a)
	if !ok {
		return 0, false
	}
	return r.apply(p, rows, r.made(c).In[1])
}

// joinedBefore joins pieces before they are reshaped, where their axis is several axes then.
// Transposed pieces can be read where they lie as long as these are not made one.
func (r *rewriting) joinedBefore(op kernels.Concat, in []Value) (Value, bool) {
	pieces, axis, moved := make([]Value, len(in)), op.Axis, false
	var rest device.Shape // the axes after the one to join
	out := r.shape(in[0]).Clone()
	out[axis] = 0
	for k, v := range in {
		_, x, ok := from[kernels.Reshape](r, v)
		if !ok {
			return 0, false
		}
		s, t := r.shape(v), r.shape(x)
		if len(t) <= axis || !t[:axis].Equal(s[:axis]) || k > 0 && !rest.Equal(t[axis+1:]) {
			return 0, false
		}
		_, _, transposed := from[kernels.Transpose](r, x)
		pieces[k], rest, moved = x, t[axis+1:], moved || transposed
		out[axis] += s[axis]
	}
	if !moved {
		return 0, false
	}
	v, ok := r.apply(op, pieces...)
	if !ok {
		return 0, false
	}
	return r.apply(kernels.Reshape{Shape: out}, v)
}

// scaledBefore scales the gradient that a softmax pulls back, not what becomes of it: a product
// makes it, which scales as it stores. Only a factor that makes nothing larger may go there.
func (r *rewriting) scaledBefore(op kernels.Unary, x Value) (Value, bool) {
	of, y, ok := from[kernels.SoftmaxGrad](r, x)
	if !ok || op.Fn != kernels.Scale || math.Abs(op.C) > 1 || !r.alone(x) {
		return 0, false
	}
	gy := r.made(x).In[1]
	if _, product := r.made(gy).Instr.(kernels.MatMul); !product || !r.alone(gy) {
		return 0, false
	}
	v, ok := r.apply(op, gy)
	if !ok {
		return 0, false
	}
	return r.apply(of, y, v)
}

// afterMoves applies an elementwise instruction where its operands are not moved yet.
func (r *rewriting) afterMoves(i Inst) (Value, bool) {
	if v, ok := r.beforeReshape(i); ok {
		return v, true
	}
	return r.beforeTranspose(i)
}

// beforeReshape applies i in the shape that its operand was made in.
func (r *rewriting) beforeReshape(i Inst) (Value, bool) {
	at := -1
	for k, v := range i.In {
		if elementwise(r.made(v).Instr) && (k == 0 || at < 0) {
			return 0, false // it stands where it should
		}
		if _, x, ok := from[kernels.Reshape](r, v); ok && at < 0 && elementwise(r.made(x).Instr) {
			at = k
		}
	}
	if at < 0 {
		return 0, false
	}
	s := r.shape(i.In[at])
	out, err := i.Instr.Infer(r.typesOf(i.In))
	if err != nil || !out[0].Shape.Equal(s) {
		return 0, false
	}
	_, x, _ := from[kernels.Reshape](r, i.In[at])
	in := slices.Clone(i.In)
	in[at] = x
	for k, v := range i.In {
		if k != at {
			to, ok := reshapedWith(r.shape(v), s, r.shape(x))
			if !ok {
				return 0, false
			}
			if in[k], ok = r.apply(kernels.Reshape{Shape: to}, v); !ok {
				return 0, false
			}
		}
	}
	v, ok := r.apply(i.Instr, in...)
	if !ok || !r.shape(v).Equal(r.shape(x)) {
		return 0, false
	}
	return r.apply(kernels.Reshape{Shape: s}, v)
}

// reshapedWith is the shape that an operand of shape b, which broadcasts to s, has to have where s
// is reshaped to t.
func reshapedWith(b, s, t device.Shape) (device.Shape, bool) {
	if b.Equal(s) {
		return t, true
	}
	b = trimmed(b)
	k := len(b)
	return b, k <= len(t) && k <= len(s) && t[len(t)-k:].Equal(s[len(s)-k:])
}

// beforeTranspose applies i before its operands are transposed, where all are in the same way or
// are scalars.
func (r *rewriting) beforeTranspose(i Inst) (Value, bool) {
	var perm []int
	in := slices.Clone(i.In)
	for k, v := range in {
		if len(r.shape(v)) == 0 {
			continue
		}
		t, x, ok := from[kernels.Transpose](r, v)
		if !ok || perm != nil && !slices.Equal(perm, t.Perm) {
			return 0, false
		}
		perm, in[k] = t.Perm, x
	}
	if perm == nil {
		return 0, false
	}
	v, ok := r.apply(i.Instr, in...)
	if !ok || len(r.shape(v)) != len(perm) {
		return 0, false
	}
	return r.apply(kernels.Transpose{Perm: perm}, v)
}

// reduceMoved reduces before its operand is moved.
func (r *rewriting) reduceMoved(op kernels.Reduce, v Value) (Value, bool) {
	if len(op.Axes) == 0 || op.Keep {
		return 0, false
	}
	m := r.made(v)
	switch move := m.Instr.(type) {
	case kernels.Transpose:
		return r.reduceTransposed(op, move.Perm, m.In[0])
	case kernels.Reshape:
		s, t := move.Shape, r.shape(m.In[0])
		out, err := op.Infer([]kernels.Type{r.Types[v]})
		if err != nil || !elementwise(r.made(m.In[0]).Instr) {
			return 0, false
		}
		kept := len(s) - len(op.Axes)
		if leading(op.Axes, len(op.Axes)) && len(t) > kept && s[len(s)-kept:].Equal(t[len(t)-kept:]) {
			return r.reduced(kernels.Reduce{Fn: op.Fn, Axes: count(0, len(t)-kept)}, m.In[0], out[0].Shape)
		}
		if slices.Equal(op.Axes, count(kept, len(s))) && len(t) > kept && s[:kept].Equal(t[:kept]) {
			return r.reduced(kernels.Reduce{Fn: op.Fn, Axes: count(kept, len(t))}, m.In[0], out[0].Shape)
		}
	}
	return 0, false
}

// count is from, from+1, … below to.
func count(from, to int) []int {
	ns := make([]int, to-from)
	for k := range ns {
		ns[k] = from + k
	}
	return ns
}

func (r *rewriting) reduceTransposed(op kernels.Reduce, perm []int, x Value) (Value, bool) {
	var axes, kept []int
	for k, p := range perm {
		if slices.Contains(op.Axes, k) {
			axes = append(axes, p)
		} else {
			kept = append(kept, p)
		}
	}
	order := slices.Sorted(slices.Values(kept))
	after := make([]int, len(kept))
	for k, p := range kept {
		after[k] = slices.Index(order, p)
	}
	slices.Sort(axes)
	return r.then(kernels.Reduce{Fn: op.Fn, Axes: axes}, kernels.Transpose{Perm: after}, x)
}
