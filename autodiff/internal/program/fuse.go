package program

import (
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// What one fused instruction may have: more operands are more streams of memory than a processor
// follows, and more steps than its registers hold.
const (
	maxOperands = 8
	maxSteps    = 24
)

// How far apart in the list instructions may stand and yet become one where nothing but a reading
// of memory is saved by it: what is made earlier, or read later, lives longer.
const maxApart = 64

// maxReaders bounds how many readers of a value are looked at.
const maxReaders = 64

// fuse makes one instruction of many that compute element by element in one shape: a Map, or the
// epilogue of a product. Values that are read elsewhere become results of their own, and reductions
// are folded.
//
// Each instruction begins as a group. In the order of the list, a group joins those that make what
// it reads, and those that read the same. A group stands at one place of the list: two can be one
// where the later one's operands are there before the earlier, or where nobody reads the earlier
// one's results before the later; so the list stays in order, and no cycle can arise.
func fuse(u *Unit) {
	f := newFusion(u)
	for k := range u.Insts {
		if f.groups[k].fits {
			f.join(k)
		}
	}
	f.emit()
}

// group is instructions that become one.
type group struct {
	fits    bool // it may be fused at all
	at      int  // the place in the list where it stands
	members []int
	shape   device.Shape
	product int     // the member that is a product, −1 for none
	steps   int     // how many members are steps of the map
	ins     []Value // what the map reads from outside, each once
}

type fusion struct {
	*Unit
	groups  []group // by instruction; those that have joined another are void
	parent  []int   // by instruction, towards that whose group it is in
	maker   []int   // by value
	readers [][]int // by value: instructions, in order
	wanted  []bool  // by value: it is a result of the unit
	last    []int   // by value: the last instruction that reads it and may be fused, −1 for none
}

func newFusion(u *Unit) *fusion {
	f := &fusion{Unit: u, maker: u.Makers(), readers: u.readers(), wanted: make([]bool, len(u.Types)), last: make([]int, len(u.Types))}
	for _, v := range u.Results {
		f.wanted[v] = true
	}
	for v := range f.last {
		f.last[v] = -1
	}
	f.parent = count(0, len(u.Insts))
	f.groups = make([]group, len(u.Insts))
	for k := range u.Insts {
		f.groups[k] = f.single(k)
	}
	return f
}

// single is the group of one instruction.
func (f *fusion) single(k int) group {
	i := f.Insts[k]
	g := group{at: k, members: []int{k}, product: -1}
	switch i.Instr.(type) {
	case kernels.Unary, kernels.Binary:
		g.fits, g.shape, g.steps = true, f.Types[i.Out[0]].Shape, 1
		g.ins = slices.Compact(slices.Clone(i.In)) // a Binary has two
	case kernels.Reduce:
		g.shape, g.ins = f.Types[i.In[0]].Shape, i.In
		g.fits = foldable(f.Types[i.In[0]], f.Types[i.Out[0]])
	case kernels.MatMul:
		g.fits, g.shape, g.product = true, f.Types[i.Out[0]].Shape, k
	}
	return g
}

// manySums is from how many results on a reduction is kept beside a map only where it has few for
// what it reads.
const manySums = 1 << 10

// foldable says whether a reduction has few enough results to be kept beside a map: they are held
// in float64, by each goroutine.
func foldable(x, y kernels.Type) bool {
	return y.Shape.Elems() <= manySums || y.Shape.Elems() <= x.Shape.Elems()/4
}

func (f *fusion) root(k int) int {
	for f.parent[k] != k {
		f.parent[k] = f.parent[f.parent[k]]
		k = f.parent[k]
	}
	return k
}

// there is the place in the list where v is made, −1 for a given one.
func (f *fusion) there(v Value) int {
	if m := f.maker[v]; m >= 0 {
		return f.groups[f.root(m)].at
	}
	return -1
}

// makes says whether v is made in the group of a.
func (f *fusion) makes(a int, v Value) bool { return f.maker[v] >= 0 && f.root(f.maker[v]) == a }

// join brings instruction k together with those that make its operands, the latest first, and those
// that read the same ones.
func (f *fusion) join(k int) {
	i, g := f.Insts[k], &f.groups[k]
	makers := make([]int, 0, 2)
	for _, v := range g.ins {
		if m := f.maker[v]; m >= 0 && f.groups[f.root(m)].fits {
			makers = append(makers, m)
		}
	}
	slices.SortFunc(makers, func(a, b int) int { return f.groups[f.root(b)].at - f.groups[f.root(a)].at })
	for _, m := range makers {
		if f.near(m, k) || f.only(m, k) {
			f.merge(f.root(m), f.root(k))
		}
	}
	if g.product >= 0 {
		return
	}
	for _, v := range i.In {
		if !f.Types[v].Shape.Equal(g.shape) {
			continue
		}
		if s := f.last[v]; s >= 0 && f.near(s, k) && f.groups[f.root(s)].product < 0 && f.groups[f.root(k)].product < 0 {
			f.merge(f.root(s), f.root(k))
		}
		f.last[v] = k
	}
}

func (f *fusion) near(a, b int) bool {
	d := f.groups[f.root(a)].at - f.groups[f.root(b)].at
	return d <= maxApart && -d <= maxApart
}

// only says whether k alone reads what m makes, so that it need not be stored if they are one.
func (f *fusion) only(m, k int) bool {
	for _, v := range f.Insts[m].Out {
		if f.wanted[v] || len(f.readers[v]) > 1 || len(f.readers[v]) == 1 && f.readers[v][0] != k {
			return false
		}
	}
	return true
}

// merge makes one group of two, where that is possible.
func (f *fusion) merge(a, b int) {
	if a == b {
		return
	}
	if f.groups[a].at > f.groups[b].at {
		a, b = b, a
	}
	x, y := &f.groups[a], &f.groups[b]
	if x.product >= 0 && y.product >= 0 || x.steps+y.steps > maxSteps || !x.shape.Equal(y.shape) && !f.small(a, b) {
		return
	}
	shape := y.shape
	ins, ok := f.inputs(a, b)
	if !ok {
		return
	}
	at := x.at
	switch {
	case f.early(b, a):
	case f.late(a, b):
		at = y.at
	default:
		return
	}
	if len(x.members) < len(y.members) {
		a, b, x, y = b, a, y, x
	}
	x.at, x.shape, x.ins, x.steps, x.product = at, shape, ins, x.steps+y.steps, max(x.product, y.product)
	x.members = append(x.members, y.members...)
	f.parent[b] = a
	y.members, y.ins = nil, nil
}

// few is how many elements may be computed as often as they are repeated, to save an instruction.
const few = 4096

// small says whether a, which b alone reads, broadcasting, is as well computed for each element of
// b.
func (f *fusion) small(a, b int) bool {
	x, y := &f.groups[a], &f.groups[b]
	if x.product >= 0 || len(x.members) != x.steps || x.steps*y.shape.Elems() > few || !repeats(x.shape, y.shape) {
		return false
	}
	for _, m := range x.members {
		v := f.Insts[m].Out[0]
		if f.wanted[v] || len(f.readers[v]) > maxReaders {
			return false
		}
		for _, k := range f.readers[v] {
			if g := f.root(k); g != a && g != b {
				return false
			}
		}
	}
	return true
}

// repeats says whether a shape broadcasts to another.
func repeats(s, to device.Shape) bool {
	lead := len(to) - len(s)
	for k, n := range s {
		if lead < 0 || n != 1 && n != to[lead+k] {
			return false
		}
	}
	return true
}

// inputs is what a and b read from outside. It fails where there is too much, or where b, the
// later, reads what a has only when it is done: a folded result, or the operand of a product.
func (f *fusion) inputs(a, b int) ([]Value, bool) {
	ins := slices.Clone(f.groups[a].ins)
	for _, v := range f.groups[b].ins {
		if f.makes(a, v) {
			if _, folded := f.Insts[f.maker[v]].Instr.(kernels.Reduce); folded {
				return nil, false
			}
			continue
		}
		if !slices.Contains(ins, v) {
			ins = append(ins, v)
		}
	}
	for _, v := range f.factors(b) {
		if f.makes(a, v) {
			return nil, false
		}
	}
	return ins, len(ins) <= maxOperands
}

// factors are the operands of a group's product.
func (f *fusion) factors(a int) []Value {
	if p := f.groups[a].product; p >= 0 {
		return f.Insts[p].In
	}
	return nil
}

// early says whether all that b reads, but for what a makes, is there before a.
func (f *fusion) early(b, a int) bool {
	at := f.groups[a].at
	ok := func(v Value) bool { return f.makes(a, v) || f.there(v) < at }
	for _, v := range f.groups[b].ins {
		if !ok(v) {
			return false
		}
	}
	for _, v := range f.factors(b) {
		if !ok(v) {
			return false
		}
	}
	return true
}

// late says whether nobody but b reads what a makes before b.
func (f *fusion) late(a, b int) bool {
	at := f.groups[b].at
	for _, m := range f.groups[a].members {
		for _, v := range f.Insts[m].Out {
			if len(f.readers[v]) > maxReaders {
				return false
			}
			for _, k := range f.readers[v] {
				if g := f.root(k); g != a && g != b && f.groups[g].at < at {
					return false
				}
			}
		}
	}
	return true
}
