package ptx

import (
	"errors"
	"fmt"
	"math/bits"
)

// barrierOp is a bar instruction.
type barrierOp struct {
	id, count int32 // registers; count -1: every thread of the block
	aligned   bool
	arrive    bool // goes on at once
	red       byte // 'p' popc, 'a' and, 'o' or; 0 none
	d, p      int
	flip      uint32
}

// barrier compiles bar and barrier.
func (c *compiler) barrier(s *stmt, o *op) error {
	o.kind = opBarrier
	b := &o.bar
	b.aligned = s.op[0] == "bar" || s.has("aligned")
	if s.has("warp") {
		if len(s.args) != 1 {
			return errUnknown
		}
		o.kind = opSync
		o.run = func(w *warp, m uint32) { w.epoch++ }
		return c.maskOf(s, o)
	}
	args := s.args
	b.arrive = s.has("arrive")
	if s.has("red") {
		if len(args) < 3 {
			return errUnknown
		}
		var err error
		if b.p, b.flip, err = c.predicate(args[len(args)-1]); err != nil {
			return err
		}
		if s.has("popc") {
			b.red = 'p'
			b.d, err = c.out(args[0])
		} else {
			if b.red = 'a'; s.has("or") {
				b.red = 'o'
			}
			b.d, _, err = c.predicate(args[0])
		}
		if err != nil {
			return err
		}
		args = args[1 : len(args)-1]
	} else if !b.arrive && !s.has("sync") {
		return errUnknown
	}
	if len(args) < 1 || len(args) > 2 {
		return errors.New("expected a barrier, and perhaps a number of threads")
	}
	u32 := typ{kind: 'u', size: 4}
	id, err := c.in(args[0], u32)
	b.id, b.count = int32(id), -1
	if err == nil && len(args) == 2 {
		var n int
		n, err = c.in(args[1], u32)
		b.count = int32(n)
	}
	return err
}

// arrive brings a strand to a barrier.
func (w *warp) arrive(s *strand, o *op, m uint32) {
	lane := bits.TrailingZeros32(m)
	id, count := uint32(w.r[o.bar.id][lane]), 0
	if o.bar.count >= 0 {
		count = int(uint32(w.r[o.bar.count][lane]))
		if count == 0 || count%32 != 0 {
			w.fail(lane, 0, fmt.Sprintf("a barrier for %d threads, which are no whole warps", count))
			return
		}
	}
	if id > 15 {
		w.fail(lane, 0, fmt.Sprintf("barrier %d of 16", id))
		return
	}
	s.bar, s.count = int(id), count
	if o.bar.arrive {
		w.b.arrived[id] += bits.OnesCount32(m)
		s.pc++
		return
	}
	s.state = waiting
}

// release lets those go on whose barrier is complete. It says whether there was one.
func (b *block) release() bool {
	var n, live int
	var count, at [16]int
	for id := range at {
		at[id] = b.arrived[id]
	}
	for _, w := range b.warps {
		live += bits.OnesCount32(w.live)
		for _, s := range w.strands {
			if s.state == waiting {
				at[s.bar] += bits.OnesCount32(s.m)
				count[s.bar] = max(count[s.bar], s.count)
			}
		}
	}
	for id := range at {
		if at[id] == 0 {
			continue
		}
		need := count[id]
		if need == 0 {
			need = live
		}
		if at[id] < need || at[id] == b.arrived[id] {
			continue
		}
		n++
		b.complete(id, count[id] == 0)
		if b.fault != nil {
			return false
		}
	}
	return n > 0
}

// complete opens a barrier, after a look whether those who came to it are where they must be.
func (b *block) complete(id int, all bool) {
	b.arrived[id] = 0
	b.epoch++
	var yes, total uint32
	first := int32(-1)
	for _, w := range b.warps {
		for _, s := range w.strands {
			if s.state != waiting || s.bar != id {
				continue
			}
			o := &b.k.code[s.pc]
			if o.bar.aligned && (s.m != w.born || all && first >= 0 && s.pc != first) {
				w.pc = s.pc
				w.failAt(s.m, 0, "divergent barrier: other threads of the block are at another one, or have ended")
				return
			}
			if first < 0 {
				first = s.pc
			}
			if o.bar.red != 0 {
				yes += uint32(bits.OnesCount32((w.p[o.bar.p] ^ o.bar.flip) & s.m))
			}
			total += uint32(bits.OnesCount32(s.m))
		}
	}
	for _, w := range b.warps {
		for k := range w.strands {
			s := &w.strands[k]
			if s.state != waiting || s.bar != id {
				continue
			}
			b.k.code[s.pc].bar.result(w, s.m, yes, total)
			s.state = running
			s.pc++
		}
	}
}

// result gives lanes what a bar.red folds.
func (o *barrierOp) result(w *warp, m, yes, total uint32) {
	switch o.red {
	case 'p':
		w.each(o.d, m, uint64(yes))
	case 'a', 'o':
		w.p[o.d] &^= m
		if o.red == 'o' && yes > 0 || yes == total {
			w.p[o.d] |= m
		}
	}
}

// stuck is the fault of a block that cannot go on.
func (b *block) stuck() {
	for _, w := range b.warps {
		for _, s := range w.strands {
			w.pc = s.pc
			switch {
			case s.state == parked:
				o := &b.k.code[s.pc]
				need := ^uint32(0)
				if o.mask >= 0 {
					need = uint32(w.r[o.mask][bits.TrailingZeros32(s.m)])
				}
				w.failAt(s.m, 0, fmt.Sprintf("lanes %08x never come; those of %08x that are alive must", need&w.live&^s.m, need))
				return
			case s.state == waiting && s.m != w.born && b.k.code[s.pc].bar.aligned:
				w.failAt(s.m, 0, fmt.Sprintf("divergent barrier: lanes %08x of the warp are not there", w.born&^s.m))
				return
			}
		}
	}
	for _, w := range b.warps {
		for _, s := range w.strands {
			w.pc = s.pc
			w.failAt(s.m, 0, fmt.Sprintf("deadlock: barrier %d waits for threads that never come", s.bar))
			return
		}
	}
}
