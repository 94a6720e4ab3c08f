package simt

import "unsafe"

// copied is an asynchronous copy under way: done when it is waited for, and no earlier, so that who
// does not wait sees it.
type copied struct {
	lane, group int
	at          uint64 // in shared memory
	to, from    []byte
	access      *Access
}

// AsyncCopy is a cp.async instruction: its registers, and how many bytes it copies.
type AsyncCopy struct {
	To, From Access
	Size     int // register: how many of the bytes are read; the rest is zero
	N        int
}

// Run begins the copies of some lanes.
func (c *AsyncCopy) Run(w *Warp, m uint32) {
	reading := uint32(0)
	for l := range 32 {
		if m>>l&1 == 0 {
			continue
		}
		have := int(min(uint32(w.Regs[c.Size][l]), uint32(c.N)))
		dst := w.LaneBytes(&c.To, l)
		if dst == nil {
			return
		}
		k := copied{lane: l, group: w.groups[l], at: uint64(uint32(w.Regs[c.To.Reg][l] + c.To.Off)), to: unsafe.Slice((*byte)(dst), c.N), access: &c.To}
		if have > 0 {
			src := w.LaneBytes(&c.From, l)
			if src == nil {
				return
			}
			k.from = unsafe.Slice((*byte)(src), have)
			reading |= 1 << l
		}
		w.async = append(w.async, k)
	}
	if w.b.meter != nil {
		w.b.meter.Count(&c.From, &w.Regs[c.From.Reg], reading)
	}
}

// Commit puts what lanes copy since the last one into a group.
func (w *Warp) Commit(m uint32) {
	for l := range 32 {
		w.groups[l] += int(m >> l & 1)
	}
}

// CompleteCopies does the copies of lanes, but for those of the last n groups; for n < 0 also those
// that are in no group yet.
func (w *Warp) CompleteCopies(m uint32, n int) {
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
