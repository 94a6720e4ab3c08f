package compile

import (
	"math/bits"
	"slices"

	"github.com/weft-project/weft/internal/ptx/simt"
)

// Compilers number values, not registers: a kernel with a thousand of them needs a hundred at a
// time. So an entry is compiled twice, and in between values that do not live at the same time get
// one place. A thread is looked at alone, for lanes have nothing in common but their program.

// mark is one use of a register by an instruction.
type mark struct {
	op, reg int32
	def     bool
}

// mostWords bounds the memory of the analysis; a kernel that is larger keeps all its registers.
const mostWords = 1 << 22

// places gives each register its place, those with a pinned one first in order; nil where every
// register has its own.
func places(code []simt.Op, marks []mark, regs int, pinned []bool) []int {
	starts := blockStarts(code)
	words := (regs + 63) / 64
	if words*len(starts) > mostWords {
		return nil
	}
	lo, hi := make([]int, regs), make([]int, regs)
	for k := range lo {
		lo[k] = -1
	}
	touch := func(r, at int) {
		if lo[r] < 0 || at < lo[r] {
			lo[r] = at
		}
		hi[r] = max(hi[r], at)
	}
	for _, m := range marks {
		at := 2 * int(m.op)
		if m.def {
			at++
		}
		touch(int(m.reg), at)
	}
	slices.SortStableFunc(marks, func(a, b mark) int { // what an instruction reads, it reads first
		if a.op != b.op {
			return int(a.op - b.op)
		}
		switch {
		case a.def == b.def:
			return 0
		case b.def:
			return -1
		}
		return 1
	})
	in, out := liveness(code, marks, starts, words)
	for b, from := range starts {
		to := len(code)
		if b+1 < len(starts) {
			to = starts[b+1]
		}
		in[b].each(func(r int) { touch(r, 2*from) })
		out[b].each(func(r int) { touch(r, 2*to-1) })
	}
	return scan(lo, hi, pinned)
}

// scan gives places in the order in which registers begin to live.
func scan(lo, hi []int, pinned []bool) []int {
	out := make([]int, len(lo))
	var order []int
	n := 0
	for r := range lo {
		switch {
		case pinned[r]:
			out[r] = n
			n++
		case lo[r] >= 0:
			order = append(order, r)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return lo[a] - lo[b] })
	ends := make([]int, 0, 64) // of the places behind n: where who has it ends
	for _, r := range order {
		k := slices.IndexFunc(ends, func(end int) bool { return end < lo[r] })
		if k < 0 {
			k = len(ends)
			ends = append(ends, 0)
		}
		ends[k] = hi[r]
		out[r] = n + k
	}
	return out
}

// blockStarts cuts code where branches come from and go to.
func blockStarts(code []simt.Op) []int {
	cut := make([]bool, len(code)+1)
	cut[0] = true
	for k, o := range code {
		switch o.Kind {
		case simt.OpBranch:
			cut[o.Target], cut[k+1] = true, true
		case simt.OpExit:
			cut[k+1] = true
		}
	}
	var out []int
	for k := range code {
		if cut[k] {
			out = append(out, k)
		}
	}
	return out
}

type bitset []uint64

func (b bitset) has(r int32) bool { return b[r>>6]>>(r&63)&1 != 0 }
func (b bitset) set(r int32)      { b[r>>6] |= 1 << (r & 63) }

func (b bitset) each(f func(r int)) {
	for w, v := range b {
		for ; v != 0; v &= v - 1 {
			f(w*64 + bits.TrailingZeros64(v))
		}
	}
}

// liveness says what lives at the beginning and at the end of each block.
func liveness(code []simt.Op, marks []mark, starts []int, words int) (in, out []bitset) {
	n := len(starts)
	sets := make(bitset, 4*n*words)
	take := func() []bitset {
		s := make([]bitset, n)
		for b := range s {
			s[b], sets = sets[:words], sets[words:]
		}
		return s
	}
	in, out = take(), take()
	use, def := take(), take()
	of := make([]int, len(code)+1) // the block of each instruction
	for b, from := range starts {
		of[from] = b
	}
	for k := 1; k < len(code); k++ {
		of[k] = max(of[k], of[k-1])
	}
	for _, m := range marks { // by instruction, what is read first
		b := of[m.op]
		switch {
		case m.def && code[m.op].Pred < 0:
			def[b].set(m.reg)
		case !def[b].has(m.reg):
			use[b].set(m.reg)
		}
	}
	for changed := true; changed; {
		changed = false
		for b := n - 1; b >= 0; b-- {
			last := len(code) - 1
			if b+1 < n {
				last = starts[b+1] - 1
			}
			o := &code[last]
			next := [2]int{-1, -1}
			if o.Kind == simt.OpBranch {
				next[0] = of[o.Target]
			}
			if (o.Kind != simt.OpBranch && o.Kind != simt.OpExit || o.Pred >= 0) && b+1 < n {
				next[1] = b + 1
			}
			for w := range words {
				var v uint64
				for _, s := range next {
					if s >= 0 {
						v |= in[s][w]
					}
				}
				out[b][w] = v
				if v = v&^def[b][w] | use[b][w]; v != in[b][w] {
					in[b][w], changed = v, true
				}
			}
		}
	}
	return in, out
}
