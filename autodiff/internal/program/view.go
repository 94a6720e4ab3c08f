package program

import (
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// view lets products, attention, maps and joins read slices, transposes and repetitions where they
// come from, so that these need not be copied. A product wants one of the last two axes to be
// contiguous, a map the last; what is not is copied, and so is what somebody reads who knows no
// views; by one instruction, however many moves there are.
func view(u *Unit) {
	w := &viewing{Unit: u, maker: u.Makers(), seen: make([]sight, len(u.Types))}
	w.copied = w.copies()
	for k := range u.Insts {
		u.Insts[k] = w.viewed(u.Insts[k])
	}
}

// sight is how a value that only moves elements is seen in the value where they lie; the zero sight
// for what is no such move.
type sight struct {
	of   Value
	view *kernels.View
}

type viewing struct {
	*Unit
	maker  []int
	seen   []sight // by value
	copied []bool  // by value: somebody needs it as it is
}

// copies finds what is seen through moves, and which of the moves have to be made all the same.
func (w *viewing) copies() []bool {
	copied := make([]bool, len(w.Types))
	for _, i := range w.Insts {
		if len(i.Out) == 1 && len(i.In) == 1 {
			w.seen[i.Out[0]] = w.through(i)
		}
	}
	for _, v := range w.Results {
		copied[v] = true
	}
	for _, i := range w.Insts {
		if isMove(i.Instr) {
			continue
		}
		for k, v := range i.In {
			if w.seen[v].view == nil || !w.cheap(i.Instr, k, v) {
				copied[v] = true
			}
		}
	}
	return copied
}

func isMove(i kernels.Instr) bool {
	switch i.(type) {
	case kernels.Transpose, kernels.Slice, kernels.BroadcastTo, kernels.Reshape:
		return true
	}
	return false
}

// through is the sight of what a move makes.
func (w *viewing) through(i Inst) sight {
	if !isMove(i.Instr) {
		return sight{}
	}
	x := i.In[0]
	s := w.seen[x]
	if s.view == nil {
		s = sight{x, kernels.Whole(w.Types[x].Shape)}
	}
	v := moved(s.view, i.Instr)
	if v == nil { // it can only be seen where it has been made
		return sight{}
	}
	return sight{s.of, v}
}

// moved is a view after a move; nil where strides cannot say it.
func moved(v *kernels.View, i kernels.Instr) *kernels.View {
	if v.Shape.Elems() == 0 {
		return nil
	}
	n := &kernels.View{Shape: v.Shape.Clone(), Offset: v.Offset, Strides: slices.Clone(v.Strides)}
	switch i := i.(type) {
	case kernels.Transpose:
		for k, p := range i.Perm {
			n.Shape[k], n.Strides[k] = v.Shape[p], v.Strides[p]
		}
	case kernels.Slice:
		n.Offset += i.Start * v.Strides[i.Axis]
		n.Shape[i.Axis] = i.Stop - i.Start
	case kernels.BroadcastTo:
		n.Shape, n.Strides = i.Shape, make([]int, len(i.Shape))
		lead := len(i.Shape) - len(v.Shape)
		for k, d := range v.Shape {
			if d == i.Shape[lead+k] {
				n.Strides[lead+k] = v.Strides[k]
			}
		}
	case kernels.Reshape:
		n.Shape = i.Shape
		n.Strides = reshapedStrides(v, i.Shape)
	}
	if n.Strides == nil || n.Shape.Elems() == 0 {
		return nil
	}
	return n
}

// reshapedStrides are the strides of a view in another shape, nil where its elements lie so that
// there are none.
func reshapedStrides(v *kernels.View, to device.Shape) []int {
	var dims, strides []int // of the view, without extents of 1
	for k, d := range v.Shape {
		if d != 1 {
			dims, strides = append(dims, d), append(strides, v.Strides[k])
		}
	}
	out := make([]int, len(to))
	for k := 0; k < len(to); {
		if to[k] == 1 {
			k++
			continue
		}
		// The fewest axes on both sides that hold as many elements.
		a, b, from, end := 1, 1, 0, k
		for first := true; first || a != b; first = false {
			switch {
			case first:
				a, b, from, end = dims[0], to[k], 1, k+1
			case a < b:
				a *= dims[from]
				from++
			default:
				b *= to[end]
				end++
			}
		}
		for j := 1; j < from; j++ {
			if strides[j-1] != strides[j]*dims[j] {
				return nil
			}
		}
		step := strides[from-1]
		for j := end - 1; j >= k; j-- {
			out[j] = step
			step *= to[j]
		}
		dims, strides, k = dims[from:], strides[from:], end
	}
	return out
}

// matrixAt says whether operand k of an instruction is a matrix of a product.
func matrixAt(i kernels.Instr, k int) bool {
	switch i.(type) {
	case kernels.MatMul, kernels.MatMulThen:
		return k < 2
	}
	return false
}

// smallView is how many elements may lie anyhow: they stay in the cache while a map reads them.
const smallView = 1 << 10

// cheap says whether operand k is as well read by its view.
func (w *viewing) cheap(i kernels.Instr, k int, v Value) bool {
	s := w.seen[v].view
	r := len(s.Shape)
	if matrixAt(i, k) {
		return r >= 2 && (rowsApart(s, r-2, r-1) || rowsApart(s, r-1, r-2))
	}
	switch i.(type) {
	case kernels.Concat, kernels.Pad:
		return true
	case kernels.Attention:
		return r == 4 && (k > 2 || rowsApart(s, 1, 3)) // a mask lies anyhow
	case kernels.AttentionGrad:
		return r == 4 && (k > 5 || rowsApart(s, 1, 3))
	case kernels.Map, kernels.MatMulThen, kernels.Unary, kernels.Binary, kernels.Reduce:
	default:
		return false
	}
	for r > 0 && s.Shape[r-1] == 1 {
		r--
	}
	return r == 0 || s.Strides[r-1] <= 1 || s.Shape.Elems() <= smallView
}

// rowsApart says whether axis a of a view steps from row to row and axis b within a row.
func rowsApart(s *kernels.View, a, b int) bool {
	return (s.Strides[b] == 1 || s.Shape[b] == 1) && (s.Strides[a] >= s.Shape[b] || s.Shape[a] == 1)
}

// viewed is an instruction that reads by views what is not copied anyway.
func (w *viewing) viewed(i Inst) Inst {
	if isMove(i.Instr) {
		return w.inOne(i)
	}
	views, in := make([]*kernels.View, len(i.In)), slices.Clone(i.In)
	flip := [2]bool{}
	some := false
	for k, v := range i.In {
		s := w.seen[v]
		if s.view == nil || w.copied[v] || w.aliases(v) {
			continue
		}
		in[k], views[k], some = s.of, s.view, true
		if r := len(s.view.Shape); matrixAt(i.Instr, k) && !rowsApart(s.view, r-2, r-1) {
			flip[k] = true
			views[k] = swapped(s.view)
		}
		if same := kernels.Whole(w.Types[s.of].Shape); views[k].Equal(same) {
			views[k] = nil
		}
	}
	if !some {
		return i
	}
	of := w.asViewed(i, flip)
	if slices.ContainsFunc(views, func(v *kernels.View) bool { return v != nil }) {
		return Inst{kernels.Viewed{Of: of, In: views}, in, i.Out}
	}
	return Inst{of, in, i.Out}
}

// inOne is a move that must be made, as one copy from where its elements lie.
func (w *viewing) inOne(i Inst) Inst {
	v := i.Out[0]
	s := w.seen[v]
	if !w.copied[v] || s.view == nil || s.of == i.In[0] || w.aliases(v) {
		return i
	}
	return Inst{kernels.Viewed{Of: kernels.Reshape{Shape: w.Types[v].Shape}, In: []*kernels.View{s.view}}, []Value{s.of}, i.Out}
}

// aliases says whether v is made by reshapes alone, which cost nothing.
func (w *viewing) aliases(v Value) bool {
	for v != w.seen[v].of && w.seen[v].view != nil {
		i := w.Insts[w.maker[v]]
		if _, ok := i.Instr.(kernels.Reshape); !ok {
			return false
		}
		v = i.In[0]
	}
	return true
}

// swapped is a view with its last two axes swapped.
func swapped(v *kernels.View) *kernels.View {
	n := &kernels.View{Shape: v.Shape.Clone(), Offset: v.Offset, Strides: slices.Clone(v.Strides)}
	r := len(n.Shape)
	n.Shape[r-1], n.Shape[r-2] = n.Shape[r-2], n.Shape[r-1]
	n.Strides[r-1], n.Strides[r-2] = n.Strides[r-2], n.Strides[r-1]
	return n
}

// asViewed is the instruction as one that may read by views; flip says which matrices are now
// stored the other way round.
func (w *viewing) asViewed(i Inst, flip [2]bool) kernels.Instr {
	switch op := i.Instr.(type) {
	case kernels.MatMul:
		op.TransA, op.TransB = op.TransA != flip[0], op.TransB != flip[1]
		return op
	case kernels.MatMulThen:
		op.TransA, op.TransB = op.TransA != flip[0], op.TransB != flip[1]
		return op
	case kernels.Unary, kernels.Binary:
		n := len(i.In)
		step := kernels.Step{Op: op, Args: [2]int{0, n - 1}}
		return kernels.Map{Shape: w.Types[i.Out[0]].Shape, Steps: []kernels.Step{step}, Outs: []kernels.Out{{Reg: n}}}
	case kernels.Reduce:
		return kernels.Map{Shape: w.Types[i.In[0]].Shape, Outs: []kernels.Out{{Fold: &op}}}
	}
	return i.Instr
}
