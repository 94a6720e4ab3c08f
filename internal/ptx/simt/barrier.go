package simt

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
)

// arrive brings a strand to a barrier.
func (w *Warp) arrive(s *strand, o *Op, m uint32) {
	lane := bits.TrailingZeros32(m)
	id, count := uint32(w.Regs[o.Bar.Barrier][lane]), 0
	if o.Bar.Count >= 0 {
		count = int(uint32(w.Regs[o.Bar.Count][lane]))
		if count == 0 || count%32 != 0 {
			w.Fail(lane, 0, fmt.Sprintf("a barrier for %d threads, which are no whole warps", count))
			return
		}
	}
	if id > 15 {
		w.Fail(lane, 0, fmt.Sprintf("barrier %d of 16", id))
		return
	}
	b := w.b
	if all := 32 * len(b.warps); b.asked(int(id)) && cmp.Or(b.counts[id], all) != cmp.Or(count, all) {
		w.Fail(lane, 0, fmt.Sprintf("barrier %d is for %d threads, and for %d, too", id, cmp.Or(b.counts[id], all), cmp.Or(count, all)))
		return
	}
	s.state, s.bar, s.need, s.counted = waiting, int(id), count, false
	b.counts[id] = max(b.counts[id], count)
	b.arrivals(int(id)) // at once: who comes next comes to the next phase
}

// asked says whether somebody has come to a barrier in its phase.
func (b *block) asked(id int) bool {
	at := func(s strand) bool { return s.state == waiting && s.bar == id }
	return b.arrived[id] > 0 || slices.ContainsFunc(b.warps, func(w *Warp) bool { return slices.ContainsFunc(w.strands, at) })
}

// arrivals counts the warps that have come to a barrier for a number of threads, and opens it where
// all have. A warp comes when all its threads have that have not ended, and counts as 32 of them,
// however many it has; those who only arrive wait for their warp, and no longer. It says whether
// one has come. A barrier of all threads is for release, as those who end are not waited for.
func (b *block) arrivals(id int) (some bool) {
	for _, w := range b.warps {
		var m uint32
		for _, s := range w.strands {
			if s.state == waiting && s.bar == id && !s.counted {
				m |= s.m
			}
		}
		if b.counts[id] == 0 || m == 0 || m != w.Live {
			continue
		}
		some = true
		b.arrived[id] += 32
		for k := range w.strands {
			if s := &w.strands[k]; !b.k.Code[s.pc].Bar.Arrive {
				s.counted = true
			} else {
				s.state = running
				s.pc++
			}
		}
		if b.arrived[id] == b.counts[id] {
			b.changes++
			b.complete(id, false)
		}
	}
	return some
}

// release lets those go on whose barrier, of all threads, is complete. It says whether there was
// one.
func (b *block) release() bool {
	n, live := 0, 0
	for id := range b.counts { // of a warp of which some have ended
		if b.arrivals(id) {
			n++
		}
	}
	come := b.arrived
	for _, w := range b.warps {
		live += bits.OnesCount32(w.Live)
		for _, s := range w.strands {
			if s.state == waiting {
				come[s.bar] += bits.OnesCount32(s.m)
			}
		}
	}
	for id, count := range b.counts {
		if count > 0 || come[id] < live || come[id] == b.arrived[id] {
			continue
		}
		n++
		b.complete(id, true)
		if b.fault != nil {
			return false
		}
	}
	return n > 0
}

// complete opens a barrier, after a look whether those who came to it are where they must be.
func (b *block) complete(id int, all bool) {
	b.arrived[id], b.counts[id] = 0, 0
	b.epoch++
	var yes, total uint32
	first := int32(-1)
	for _, w := range b.warps {
		for _, s := range w.strands {
			if s.state != waiting || s.bar != id || s.counted == all {
				continue
			}
			o := &b.k.Code[s.pc]
			if o.Bar.Aligned && (s.m != w.born || all && first >= 0 && s.pc != first) {
				w.pc = s.pc
				w.FailAt(s.m, 0, "divergent barrier: other threads of the block are at another one, or have ended")
				return
			}
			if first < 0 {
				first = s.pc
			}
			if o.Bar.Fold != 0 {
				yes += uint32(bits.OnesCount32((w.Preds[o.Bar.Test] ^ o.Bar.Flip) & s.m))
			}
			total += uint32(bits.OnesCount32(s.m))
		}
	}
	for _, w := range b.warps {
		for k := range w.strands {
			s := &w.strands[k]
			switch {
			case s.state != waiting || s.bar != id:
				continue
			case s.counted == all:
				b.counts[id] = s.need // of the next phase
				continue
			}
			b.k.Code[s.pc].Bar.result(w, s.m, yes, total)
			s.state = running
			s.pc++
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
				o := &b.k.Code[s.pc]
				need := ^uint32(0)
				if o.Mask >= 0 {
					need = uint32(w.Regs[o.Mask][bits.TrailingZeros32(s.m)])
				}
				w.FailAt(s.m, 0, fmt.Sprintf("lanes %08x never come; those of %08x that are alive must", need&w.Live&^s.m, need))
				return
			case s.state == waiting && s.m != w.born && b.k.Code[s.pc].Bar.Aligned:
				w.FailAt(s.m, 0, fmt.Sprintf("divergent barrier: lanes %08x of the warp are not there", w.born&^s.m))
				return
			}
		}
	}
	for _, w := range b.warps {
		for _, s := range w.strands {
			reason := fmt.Sprintf("deadlock: barrier %d waits for threads that never come", s.bar)
			if w.pc = s.pc; s.state != waiting {
				w.pc--
				reason = "deadlock: a phase of an mbarrier that never ends is asked for"
			}
			w.FailAt(s.m, 0, reason) // the first counts
		}
	}
}
