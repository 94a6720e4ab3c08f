package program

import (
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// narrow keeps values in memory as bfloat16, for a backend that rounds factors of products to that
// ([kernels.Narrower]). It does so with
//
//   - what only products and attention read: they would round it themselves, so no number changes;
//   - what products and attention make, unless it is added to something as large: the sum of many
//     such, such as a transformer's stream of residuals, stays float32, as do all statistics, and
//     what gradients of parameters are made of ([Unit.WideResults]);
//   - products that are read by the map after them alone,
//   - what the unit says of its inputs and results ([Unit.NarrowGiven]).
//
// What others read as float32 and products too is made in both forms, where one instruction can.
// PyTorch's autocast keeps the same values so. bfloat16 has float32's exponents, but its largest
// number is a 256th part smaller: what is larger yet, above 3.396e38, becomes infinite, as in
// PyTorch.
func narrow(u *Unit) {
	n := newNarrowing(u)
	n.choose()
	n.twice()
	n.results()
	n.retype()
}

type narrowing struct {
	*Unit
	root    []Value         // by value: what it is a reshape of, or itself; also of those that are added
	narrow  []bool          // by root
	wanted  []bool          // by root: somebody outside wants it as it is
	outside []bool          // by root: it is given, or wanted as bfloat16 by somebody outside
	exact   []bool          // by root: it is part of a sum that is float32 alone
	also    map[Value]Value // by value of float32, reshapes too: the same as bfloat16
}

func newNarrowing(u *Unit) *narrowing {
	flags := func() []bool { return make([]bool, len(u.Types)) }
	n := &narrowing{
		Unit: u, root: make([]Value, len(u.Types)), narrow: flags(), wanted: flags(), outside: flags(), exact: flags(), also: map[Value]Value{},
	}
	for v := range n.root {
		n.root[v] = Value(v)
	}
	for _, i := range u.Insts {
		if alias(i) {
			n.root[i.Out[0]] = n.root[i.In[0]]
		}
	}
	for k, v := range u.Given {
		n.narrow[v], n.outside[v] = flagged(u.NarrowGiven, k) && u.Types[v].Dtype == device.Float32, true
	}
	for k, v := range u.Results {
		if !flagged(u.NarrowResults, k) {
			n.wanted[n.root[v]] = true
		}
	}
	for k, v := range u.Results {
		if r := n.root[v]; flagged(u.NarrowResults, k) && !n.wanted[r] && !n.outside[r] && u.Types[r].Dtype == device.Float32 {
			n.narrow[r], n.outside[r] = true, true
		}
	}
	n.sums()
	return n
}

func flagged(flags []bool, k int) bool { return k < len(flags) && flags[k] }

// sums finds what the unit's wide results are made of, element by element or by moves.
func (n *narrowing) sums() {
	for k, v := range n.Results {
		if r := n.root[v]; flagged(n.WideResults, k) {
			n.exact[r] = true
		}
	}
	for k := len(n.Insts) - 1; k >= 0; k-- { // readers come after what they read
		i := n.Insts[k]
		for at, v := range i.Out {
			if !n.exact[n.root[v]] {
				continue
			}
			for _, x := range carried(i, at) {
				n.exact[n.root[x]] = true
			}
		}
	}
}

// carried are the operands whose elements result at has, or is computed of one by one.
func carried(i Inst, at int) []Value {
	switch of := kernels.Unviewed(i.Instr).(type) {
	case kernels.MatMulThen:
		if of.Then.Outs[at].Fold == nil {
			return i.In[2:]
		}
	case kernels.Map:
		if of.Outs[at].Fold == nil {
			return i.In
		}
	case kernels.Unary, kernels.Binary, kernels.BroadcastTo, kernels.Reshape, kernels.Transpose, kernels.Slice, kernels.Pad, kernels.Concat:
		return i.In
	}
	return nil
}

// reading is how a value is read, by all who read it: the greatest counts.
type reading int

const (
	unread    reading = iota
	asFactor          // of products alone, and rounded there
	asProduct         // also by what computes as well with a product that was rounded
	asItIs            // also by others
)

// readings are how values are read, by root.
func (n *narrowing) readings() []reading {
	read := make([]reading, len(n.Types))
	for _, i := range n.Insts {
		for k, v := range i.In {
			how := asItIs
			switch {
			case alias(i) || isFactor(i.Instr, k):
				how = asFactor
			case kernels.ReadsNarrow(i.Instr, k):
				how = asProduct
			}
			read[n.root[v]] = max(read[n.root[v]], how)
		}
	}
	return read
}

// choose finds what else may be narrow.
func (n *narrowing) choose() {
	maker, read := n.Makers(), n.readings()
	for v, t := range n.Types {
		if n.root[v] != Value(v) || n.wanted[v] || n.outside[v] || n.exact[v] || t.Dtype != device.Float32 || maker[v] < 0 {
			continue
		}
		i := n.Insts[maker[v]]
		n.narrow[v] = read[v] == asFactor || read[v] == asProduct && makesProduct(i, Value(v), n.Types)
	}
}

// isFactor says whether an instruction reads operand k as a factor of products.
func isFactor(i kernels.Instr, k int) bool {
	switch of := kernels.Unviewed(i).(type) {
	case kernels.Attention:
		return k < 3 // not the mask
	case kernels.AttentionGrad:
		return k < 6 && k != 4 // the logarithms
	default:
		return matrixAt(of, k)
	}
}

// makesProduct says whether v is a product, or attention, without anything as large added.
func makesProduct(i Inst, v Value, types []kernels.Type) bool {
	switch of := kernels.Unviewed(i.Instr).(type) {
	case kernels.MatMul, kernels.AttentionGrad:
		return true
	case kernels.Attention:
		return v == i.Out[0]
	case kernels.MatMulThen:
		at := slices.Index(i.Out, v)
		return of.Then.Outs[at].Fold == nil && !slices.ContainsFunc(i.In[2:], func(x Value) bool {
			return types[x].Shape.Elems() >= of.Then.Shape.Elems()
		})
	}
	return false
}

// twice has maps make what they make of float32 as bfloat16, too, where products read it; and
// copies inputs that are wanted so, or that several products read.
func (n *narrowing) twice() {
	need, factors := n.needed(), n.factors()
	old := n.Insts
	n.Insts = make([]Inst, 0, len(old))
	for _, v := range n.Given {
		if factors[v] > 1 {
			n.also[v] = n.copied(v, true)
		}
	}
	for k, v := range n.Results {
		if _, have := n.also[v]; flagged(n.NarrowResults, k) && slices.Contains(n.Given, v) && !n.narrow[v] && n.Types[v].Dtype == device.Float32 && !have {
			n.also[v] = n.copied(v, true)
		}
	}
	for _, i := range old {
		if alias(i) {
			n.reshaped(i)
			continue
		}
		for k, v := range i.In {
			if w, ok := n.also[v]; ok && isFactor(i.Instr, k) {
				i.In = slices.Clone(i.In)
				i.In[k] = w
			}
		}
		for at, v := range i.Out {
			if need[v] {
				n.also[v] = n.addNarrow(n.Types[v], n.fresh())
				i = doubled(i, at, n.also[v])
			}
		}
		n.Insts = append(n.Insts, i)
	}
}

// factors counts how many products read each value of float32.
func (n *narrowing) factors() map[Value]int {
	read := map[Value]int{}
	for _, i := range n.Insts {
		for k, v := range i.In {
			if r := n.root[v]; isFactor(i.Instr, k) && !n.narrow[r] && n.Types[r].Dtype == device.Float32 {
				read[r]++
			}
		}
	}
	return read
}

// reshaped adds a reshape, and one of the other form where there is that.
func (n *narrowing) reshaped(i Inst) {
	n.Insts = append(n.Insts, i)
	if w, ok := n.also[i.In[0]]; ok {
		n.also[i.Out[0]] = n.addNarrow(n.Types[i.Out[0]], n.root[w])
		n.Insts = append(n.Insts, Inst{i.Instr, []Value{w}, []Value{n.also[i.Out[0]]}})
	}
}

// needed are the values of float32 that a map makes, element by element, and a product reads,
// perhaps reshaped.
func (n *narrowing) needed() []bool {
	need := make([]bool, len(n.Types))
	for _, i := range n.Insts {
		for k, v := range i.In {
			if r := n.root[v]; !alias(i) && isFactor(i.Instr, k) && !n.narrow[r] && n.Types[r].Dtype == device.Float32 {
				need[r] = true
			}
		}
	}
	maker := n.Makers()
	for v, is := range need {
		if is {
			m, ok := kernels.Map{}, false
			if maker[v] >= 0 {
				m, ok = mapOf(n.Insts[maker[v]].Instr)
			}
			need[v] = ok && m.Outs[slices.Index(n.Insts[maker[v]].Out, Value(v))].Fold == nil
		}
	}
	return need
}

// mapOf is the map that makes an instruction's results.
func mapOf(i kernels.Instr) (kernels.Map, bool) {
	switch i := kernels.Unviewed(i).(type) {
	case kernels.Map:
		return i, true
	case kernels.MatMulThen:
		return i.Then, true
	}
	return kernels.Map{}, false
}

// doubled is an instruction that makes what its result at some place is once more.
func doubled(i Inst, at int, as Value) Inst {
	m, _ := mapOf(i.Instr)
	m.Outs = append(slices.Clone(m.Outs), m.Outs[at])
	var of kernels.Instr = m
	if p, ok := kernels.Unviewed(i.Instr).(kernels.MatMulThen); ok {
		p.Then = m
		of = p
	}
	if v, ok := i.Instr.(kernels.Viewed); ok {
		of = kernels.Viewed{Of: of, In: v.In}
	}
	return Inst{of, i.In, append(slices.Clone(i.Out), as)}
}

// addNarrow adds a value that is narrow, a reshape of root or, where that is itself, of nothing.
func (n *narrowing) addNarrow(t kernels.Type, root Value) Value {
	v := n.Fresh(t)
	n.root, n.narrow, n.exact = append(n.root, root), append(n.narrow, true), append(n.exact, false)
	return v
}

// fresh is the next value's name.
func (n *narrowing) fresh() Value { return Value(len(n.Types)) }

// results gives the unit's results the form that is wanted, by copies where they have another.
func (n *narrowing) results() {
	n.Results = slices.Clone(n.Results)
	for k, v := range n.Results {
		want := flagged(n.NarrowResults, k)
		if n.Types[v].Dtype != device.Float32 || n.narrow[n.root[v]] == want {
			continue
		}
		w, have := n.also[v]
		if !have || !want {
			w = n.copied(v, want)
		}
		n.Results[k] = w
	}
}

// copied is a copy of a value, narrow or not.
func (n *narrowing) copied(v Value, narrow bool) Value {
	t := n.Types[v]
	w := n.addNarrow(t, n.fresh())
	n.narrow[w] = narrow
	n.Insts = append(n.Insts, Inst{kernels.Map{Shape: t.Shape, Outs: []kernels.Out{{}}}, []Value{v}, []Value{w}})
	return w
}

// retype says what has been chosen in the types, and in the instructions.
func (n *narrowing) retype() {
	n.Types = slices.Clone(n.Types)
	for v, r := range n.root {
		if n.narrow[r] {
			n.Types[v].Dtype = device.BFloat16
		}
	}
	for k, i := range n.Insts {
		isNarrow := func(v Value) bool { return n.narrow[n.root[v]] }
		outs := make([]bool, len(i.Out))
		for at, v := range i.Out {
			outs[at] = isNarrow(v)
		}
		if then := n.roundsProduct(i); then || slices.Contains(outs, true) || slices.ContainsFunc(i.In, isNarrow) {
			n.Insts[k].Instr = kernels.Narrow{Of: i.Instr, Outs: outs, Product: then}
		}
	}
}

// roundsProduct says whether an instruction is a product whose map may read it as bfloat16.
func (n *narrowing) roundsProduct(i Inst) bool {
	p, ok := kernels.Unviewed(i.Instr).(kernels.MatMulThen)
	if !ok || n.Types[i.In[0]].Dtype == device.Float64 {
		return false
	}
	for at, v := range i.Out {
		if p.Then.Outs[at].Fold == nil && n.exact[n.root[v]] {
			return false
		}
	}
	return true
}
