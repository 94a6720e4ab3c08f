package program

import (
	"container/heap"
	"slices"

	"github.com/weft-project/weft/kernels"
)

// plan says where every value lies. The buffers of a run are the inputs, then one for each result
// that is made and for each large value between, then the arena of all small ones.
type plan struct {
	calls   []kernels.Call
	inputs  int
	bufs    []int  // bytes of each buffer
	written []bool // all but the inputs
	results []int  // the buffer of each result
	over    []int  // for each result that is made: an input that it may be written over, −1 for none
	arena   int    // bytes of the arena, 0 for none
	lives   []span // of each buffer
	first   []int  // the first call of each part
}

// span is the calls during which a buffer is needed.
type span struct{ first, last int }

// ownBuffer is from how many bytes on a value has a buffer of its own, which is there only while it
// is needed: to take it from the device's pool costs nothing beside the time to fill it. A
// [kernels.Recorder] has another.
const ownBuffer = 128 << 10

// alignment of places in an arena: a vector and a line of the cache.
const alignment = 64

// storage is memory that one or more values share, one after the other: a value and its reshapes,
// or an operand and the result that is written over it.
type storage struct {
	bytes      int
	buf, off   int // where it lies; buf −1 for the arena, until it is known
	first, end int // the instruction that makes it, and the last that reads it
}

// placer lays a unit out.
type placer struct {
	unit   *Unit
	large  int // from how many bytes on a value has a buffer of its own
	plan   plan
	of     []int // by value: its storage, −1 for none yet
	stores []storage
}

// lay plans the memory of a unit. Values of large bytes or more have buffers of their own.
func lay(u *Unit, large int) *plan {
	p := &placer{unit: u, large: large, of: make([]int, len(u.Types))}
	for v := range p.of {
		p.of[v] = -1
	}
	for _, v := range u.Given {
		p.own(v, p.buffer(u.Types[v].Bytes(), false))
	}
	p.plan.inputs = len(u.Given)
	p.lifetimes()
	for _, v := range u.Results {
		if s := &p.stores[p.of[v]]; s.buf < 0 {
			s.buf = p.buffer(s.bytes, true)
		}
		p.plan.results = append(p.plan.results, p.stores[p.of[v]].buf)
	}
	p.coalesce()
	p.overInputs()
	p.arena()
	p.emit()
	p.spans()
	p.plan.first = p.plan.starts(large)
	return &p.plan
}

// buffer adds a buffer.
func (p *placer) buffer(bytes int, written bool) int {
	p.plan.bufs = append(p.plan.bufs, bytes)
	p.plan.written = append(p.plan.written, written)
	return len(p.plan.bufs) - 1
}

// own gives a value storage of its own in a buffer, −1 for the arena.
func (p *placer) own(v Value, buf int) {
	p.of[v] = len(p.stores)
	p.stores = append(p.stores, storage{bytes: p.unit.Types[v].Bytes(), buf: buf})
}

// lifetimes gives every value storage, reshapes that of their operand, and finds its first and last
// instruction.
func (p *placer) lifetimes() {
	for k, i := range p.unit.Insts {
		for _, v := range i.In {
			p.stores[p.of[v]].end = k
		}
		if alias(i) {
			p.of[i.Out[0]] = p.of[i.In[0]]
			continue
		}
		for _, v := range i.Out {
			p.own(v, -1)
			p.stores[p.of[v]].first, p.stores[p.of[v]].end = k, k
		}
	}
	for _, v := range p.unit.Results {
		p.stores[p.of[v]].end = len(p.unit.Insts)
	}
}

// alias says that an instruction only gives its operand another shape.
func alias(i Inst) bool {
	of := i.Instr
	if n, ok := of.(kernels.Narrow); ok {
		of = n.Of
	}
	_, ok := of.(kernels.Reshape)
	return ok
}

// coalesce lets results be written over operands that end there, where the instruction allows it.
// From the last instruction to the first, so that a whole chain ends up in the buffer of a result.
func (p *placer) coalesce() {
	over := make([]int, len(p.stores)) // by storage: the one it was joined with
	for s := range over {
		over[s] = s
	}
	root := func(s int) int {
		for over[s] != s {
			over[s] = over[over[s]]
			s = over[s]
		}
		return s
	}
	for k := len(p.unit.Insts) - 1; k >= 0; k-- {
		i := p.unit.Insts[k]
		if alias(i) {
			continue
		}
		types := p.unit.typesOf(i.In)
		for n, o := range i.Out {
			for m, x := range i.In {
				to, from := p.of[o], p.of[x]
				if !p.ends(from, k) || p.stores[to].first != k || p.stores[from].bytes != p.stores[to].bytes ||
					!kernels.Overwrites(i.Instr, types, n, m) || p.readTwice(i, m, from) || over[from] != from {
					continue
				}
				r := root(to)
				over[from] = r
				p.stores[r].first = min(p.stores[r].first, p.stores[from].first)
				break
			}
		}
	}
	for v, s := range p.of {
		if s >= 0 {
			p.of[v] = root(s)
		}
	}
}

// ends says that a storage of the arena is not used after instruction k.
func (p *placer) ends(s, k int) bool {
	return p.stores[s].buf < 0 && p.stores[s].end == k && p.stores[s].first < k
}

// overInputs finds an input for each result that is made over which it may be written: it is as
// long, ends before the result begins, or is read by the instruction that begins the result and
// lets itself be written over. Each input is found once, the last ones first.
func (p *placer) overInputs() {
	given := len(p.unit.Given)
	p.plan.over = make([]int, len(p.plan.bufs)-given)
	taken := make([]bool, given)
	for m := range p.plan.over {
		p.plan.over[m] = -1
		for g := given - 1; g >= 0 && p.plan.over[m] < 0; g-- {
			if !taken[g] && p.mayReplace(given+m, p.of[p.unit.Given[g]]) {
				taken[g], p.plan.over[m] = true, g
			}
		}
	}
}

// mayReplace says that all that is written to a buffer may be written over a given storage.
func (p *placer) mayReplace(buf, given int) bool {
	g := p.stores[given]
	if g.bytes != p.plan.bufs[buf] || g.end == len(p.unit.Insts) || g.bytes == 0 {
		return false
	}
	for k := range g.end + 1 {
		i := p.unit.Insts[k]
		for n, o := range i.Out {
			if p.stores[p.of[o]].buf != buf || alias(i) {
				continue
			}
			if k < g.end {
				return false
			}
			for m, x := range i.In {
				if p.of[x] == given && (p.readTwice(i, m, given) || !kernels.Overwrites(i.Instr, p.unit.typesOf(i.In), n, m)) {
					return false
				}
			}
		}
	}
	return true
}

// readTwice says that another operand lies where operand m lies.
func (p *placer) readTwice(i Inst, m, store int) bool {
	for n, x := range i.In {
		if n != m && p.of[x] == store {
			return true
		}
	}
	return false
}

// arena finds an offset for every storage that has no buffer: the lowest that is free while it
// lives, in order of their beginnings.
func (p *placer) arena() {
	used := make([]bool, len(p.stores))
	for _, s := range p.of {
		if s >= 0 {
			used[s] = true
		}
	}
	var todo []int
	for s := range p.stores {
		st := &p.stores[s]
		switch {
		case !used[s] || st.buf >= 0:
		case st.bytes >= p.large:
			st.buf = p.buffer(st.bytes, true)
		default:
			todo = append(todo, s)
		}
	}
	if len(todo) == 0 {
		return
	}
	slices.SortStableFunc(todo, func(a, b int) int { return p.stores[a].first - p.stores[b].first })
	var f space
	var living lives
	for _, s := range todo {
		st := &p.stores[s]
		for len(living) > 0 && living[0].end < st.first {
			f.give(heap.Pop(&living).(life).hole)
		}
		n := aligned(st.bytes)
		st.off = f.allocate(n)
		heap.Push(&living, life{st.end, hole{st.off, n}})
	}
	p.plan.arena = f.size
	at := p.buffer(f.size, true)
	for _, s := range todo {
		p.stores[s].buf = at
	}
}

// spans finds when each buffer is needed. Results and what they lie over are needed to the end.
func (p *placer) spans() {
	end := len(p.plan.calls) - 1
	p.plan.lives = make([]span, len(p.plan.bufs))
	for b := range p.plan.lives {
		p.plan.lives[b] = span{end + 1, -1}
	}
	for k, c := range p.plan.calls {
		for _, at := range [2][]kernels.Place{c.Outs, c.Ins} {
			for _, a := range at {
				l := &p.plan.lives[a.Buf]
				l.first, l.last = min(l.first, k), max(l.last, k)
			}
		}
	}
	for _, b := range p.plan.results {
		l := &p.plan.lives[b]
		l.first, l.last = max(min(l.first, end), 0), end
	}
}

// emit writes the calls down.
func (p *placer) emit() {
	place := func(vs []Value) []kernels.Place {
		at := make([]kernels.Place, len(vs))
		for k, v := range vs {
			s := p.stores[p.of[v]]
			at[k] = kernels.Place{Buf: s.buf, Off: s.off, Len: s.bytes}
		}
		return at
	}
	for _, i := range p.unit.Insts {
		if alias(i) {
			continue
		}
		p.plan.calls = append(p.plan.calls, kernels.Call{
			Instr: i.Instr, In: p.unit.typesOf(i.In), Outs: place(i.Out), Ins: place(i.In),
		})
	}
}
