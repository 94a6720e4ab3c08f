package ptx

import "unsafe"

// copied is an asynchronous copy under way: done when it is waited for, and no earlier, so that who
// does not wait sees it.
type copied struct {
	lane, group int
	at          uint64 // in shared memory
	to, from    []byte
	access      *access
}

// asyncCopy is a cp.async instruction: its registers, and how many bytes it copies.
type asyncCopy struct {
	to, from access
	size     int // register: how many of the bytes are read; the rest is zero
	n        int
	meter    *Traffic
}

// run begins the copies of some lanes.
func (c *asyncCopy) run(w *warp, m uint32) {
	reading := uint32(0)
	for l := range 32 {
		if m>>l&1 == 0 {
			continue
		}
		have := int(min(uint32(w.r[c.size][l]), uint32(c.n)))
		dst := w.at(&c.to, l)
		if dst == nil {
			return
		}
		k := copied{lane: l, group: w.groups[l], at: uint64(uint32(w.r[c.to.reg][l] + c.to.off)), to: unsafe.Slice((*byte)(dst), c.n), access: &c.to}
		if have > 0 {
			src := w.at(&c.from, l)
			if src == nil {
				return
			}
			k.from = unsafe.Slice((*byte)(src), have)
			reading |= 1 << l
		}
		w.async = append(w.async, k)
	}
	if c.meter != nil {
		c.meter.count(&c.from, &w.r[c.from.reg], reading)
	}
}

// commit puts what lanes copy since the last one into a group.
func (w *warp) commit(m uint32) {
	for l := range 32 {
		w.groups[l] += int(m >> l & 1)
	}
}

// finish does the copies of lanes, but for those of the last n groups; for n < 0 also those that
// are in no group yet.
func (w *warp) finish(m uint32, n int) {
	kept := w.async[:0]
	for _, k := range w.async {
		if m>>k.lane&1 == 0 || n >= 0 && k.group >= w.groups[k.lane]-n {
			kept = append(kept, k)
			continue
		}
		clear(k.to[copy(k.to, k.from):])
		if !w.touch(k.lane, k.at, k.access) {
			return
		}
	}
	w.async = kept
}
