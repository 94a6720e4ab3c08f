package simt

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/weft-project/weft/internal/vec"
)

type strandState uint8

const (
	running strandState = iota
	parked              // for other lanes of its warp
	waiting             // at a barrier
	polled              // for an mbarrier, in vain, and not again in this slice
)

// strand is lanes of a warp that stand at the same instruction.
type strand struct {
	pc    int32
	m     uint32
	state strandState
	bar   int // the barrier

	need    int  // how many threads it says that the barrier is for; 0: all
	counted bool // its warp has come
}

// Warp is 32 threads, and their registers.
type Warp struct {
	b       *block
	id      int
	Regs    []Lanes
	Preds   []uint32
	Carry   uint32
	born    uint32 // lanes that there are
	Live    uint32 // and those that have not ended
	pc      int32  // of the instruction that runs
	strands []strand
	last    *Allocation // that was found last
	async   []copied    // copies under way
	groups  [32]int     // of copies that each lane has committed
	epoch   uint32      // counts what orders the accesses of a warp's lanes to shared memory
	proxies uint32      // counts its fences between threads' accesses to shared memory and others'

	products     []product // under way
	productGroup int       // of products that are not committed
	sumsMade     uint32
	fenced       bool // for products
}

// Each sets a register's lanes to one value.
//
//go:norace
//go:nocheckptr
func (w *Warp) Each(d int, m uint32, v uint64) {
	D := &w.Regs[d]
	for l := range 32 {
		if m>>l&1 != 0 {
			D[l] = v
		}
	}
}

// Order is a bar.warp.sync: what lanes did before it comes before what they do behind it.
func (w *Warp) Order(uint32) { w.epoch++ }

// slice is how many instructions a warp does before others have their turn.
const slice = 1 << 16

// runSlice goes on until every strand waits or has ended, or the slice is over. It says whether
// anything was done.
func (w *Warp) runSlice() (moved bool) {
	vec.ClearUppers()
	left := slice
	for k := range w.strands {
		if w.strands[k].state == polled {
			w.strands[k].state = running
		}
	}
	for left > 0 && w.b.fault == nil {
		k := w.pick()
		if k < 0 {
			return moved
		}
		moved = true
		left = w.advance(k, left)
	}
	return moved
}

// pick gives the runnable strand that is furthest behind, with all others at its place joined to
// it; -1 where there is none.
//
//go:norace
//go:nocheckptr
func (w *Warp) pick() int {
	best := -1
	for k := range w.strands {
		if s := &w.strands[k]; s.state == running && (best < 0 || s.pc < w.strands[best].pc) {
			best = k
		}
	}
	if best < 0 || len(w.strands) == 1 {
		return best
	}
	pc := w.strands[best].pc
	m := uint32(0)
	kept := w.strands[:0]
	for _, s := range w.strands {
		if s.pc == pc && s.state != waiting && s.state != polled {
			m |= s.m
		} else {
			kept = append(kept, s)
		}
	}
	w.strands = append(kept, strand{pc: pc, m: m})
	return len(w.strands) - 1
}

// advance runs strand k until it splits, stops, or reaches another.
//
//go:norace
//go:nocheckptr
func (w *Warp) advance(k, left int) int {
	s := &w.strands[k]
	limit := int32(math.MaxInt32)
	for j := range w.strands {
		if o := &w.strands[j]; j != k && o.state != waiting && o.pc > s.pc {
			limit = min(limit, o.pc)
		}
	}
	code, b := w.b.k.Code, w.b
	pc, m := s.pc, s.m
	start := left
	for left > 0 {
		o := &code[pc]
		em := m
		if o.Pred >= 0 {
			em &= w.Preds[o.Pred] ^ o.Flip
		}
		w.pc = pc
		left--
		switch o.Kind {
		case opPlain:
			if em != 0 {
				o.Run(w, em)
				if b.fault != nil {
					left = 0
				}
			}
			pc++
		case OpBranch:
			switch em {
			case m:
				pc = o.Target
			case 0:
				pc++
			default:
				s.pc, s.m = pc+1, m&^em
				w.strands = append(w.strands, strand{pc: o.Target, m: em})
				b.steps += int64(start - left)
				return left
			}
		case OpExit:
			w.Live &^= em
			for j := range w.strands { // who waits for them does so no more
				if w.strands[j].state == parked {
					w.strands[j].state = running
				}
			}
			if m &^= em; m == 0 {
				w.dropStrand(k)
				b.steps += int64(start - left)
				return left
			}
			pc++
		case OpTell:
			if em != 0 {
				o.Run(w, em)
				s.pc, s.m = pc+1, m
				b.steps += int64(start - left)
				return 0
			}
			pc++
		case OpPoll:
			if em != 0 {
				w.b.polls++
				if !o.Poll(w, em) {
					s.pc, s.m, s.state = pc+1, m, polled
					b.steps += int64(start - left)
					return left
				}
			}
			pc++
		default:
			s.pc, s.m = pc, m
			b.steps += int64(start - left)
			w.stop(k, o, em)
			return left
		}
		if pc >= limit || left <= 0 {
			break
		}
		if pc < s.pc { // a loop: who was passed may be next
			s.pc, s.m = pc, m
			if len(w.strands) > 1 {
				break
			}
		}
	}
	s.pc, s.m = pc, m
	b.steps += int64(start - left)
	if b.steps > b.limit && b.fault == nil {
		w.FailAt(m, 0, fmt.Sprintf("more than %d instructions: an endless loop?", b.limit))
	}
	return left
}

func (w *Warp) dropStrand(k int) {
	last := len(w.strands) - 1
	w.strands[k] = w.strands[last]
	w.strands = w.strands[:last]
}

// stop does an instruction that others take part in: of the warp, where all who must have come, or
// of the block.
//
//go:norace
//go:nocheckptr
func (w *Warp) stop(k int, o *Op, em uint32) {
	s := &w.strands[k]
	if rest := s.m &^ em; rest != 0 { // whose predicate does not hold goes on
		if em == 0 {
			s.pc++
			return
		}
		w.strands = append(w.strands, strand{pc: s.pc + 1, m: rest})
		s = &w.strands[k]
		s.m = em
	}
	if o.Kind == OpBarrier {
		w.arrive(s, o, em)
		return
	}
	for left := em; left != 0; {
		need := ^uint32(0)
		group := left
		if o.Mask >= 0 {
			need = uint32(w.Regs[o.Mask][bits.TrailingZeros32(left)])
			group = 0
			for l := range 32 {
				if left>>l&1 != 0 && uint32(w.Regs[o.Mask][l]) == need {
					group |= 1 << l
				}
			}
		}
		if group&^need != 0 {
			w.FailAt(group&^need, 0, fmt.Sprintf("the lane is not in its own mask %08x", need))
			return
		}
		if need&w.Live&^em != 0 {
			s.state = parked
			return
		}
		left &^= group
	}
	for left := em; left != 0; {
		group := left
		if o.Mask >= 0 {
			need := uint32(w.Regs[o.Mask][bits.TrailingZeros32(left)])
			group &= need
		}
		o.Run(w, group)
		left &^= group
	}
	s.pc++
}
