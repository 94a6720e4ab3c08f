package ptx

import (
	"errors"
	"unsafe"
)

// copied is an asynchronous copy under way: done when it is waited for, and no earlier, so that who
// does not wait sees it.
type copied struct {
	lane, group int
	at          uint64 // in shared memory
	to, from    []byte
	access      *access
}

// async compiles cp.async and what waits for it.
func (c *compiler) async(s *stmt) (exec, error) {
	switch {
	case !s.has("async") || s.has("bulk") || s.has("mbarrier"):
		return nil, errUnknown
	case s.has("commit_group"):
		return func(w *warp, m uint32) {
			for l := range 32 {
				w.groups[l] += int(m >> l & 1)
			}
		}, nil
	case s.has("wait_all"):
		return func(w *warp, m uint32) { w.finish(m, -1) }, nil
	case s.has("wait_group"):
		if len(s.args) != 1 || s.args[0].kind != operandImm || s.args[0].imm > 1<<20 {
			return nil, errors.New("expected a number of groups")
		}
		n := int(s.args[0].imm)
		return func(w *warp, m uint32) { w.finish(m, n) }, nil
	}
	if len(s.args) < 3 || len(s.args) > 4 || s.args[2].kind != operandImm {
		return nil, errUnknown
	}
	n := int(s.args[2].imm)
	if n != 4 && n != 8 && n != 16 || s.has("cg") && n != 16 {
		return nil, errors.New("4, 8 or 16 bytes are copied; 16 with .cg")
	}
	granule := min(c.k.granule, 4)
	to, err := c.addressOf(&stmt{op: []string{"cp", "shared", "b8"}}, s.args[0], n)
	if err != nil {
		return nil, err
	}
	from, err := c.addressOf(&stmt{op: []string{"cp", "global", "b8"}}, s.args[1], n)
	if err != nil {
		return nil, err
	}
	c.k.granule = granule // a copy has 4 bytes at least
	to.write = true
	size := c.constant(uint64(n))
	if len(s.args) == 4 {
		if size, err = c.in(s.args[3], typ{kind: 'u', size: 4}); err != nil {
			return nil, err
		}
	}
	meter := c.k.meter
	return c.metered(func(w *warp, m uint32) {
		reading := uint32(0)
		for l := range 32 {
			if m>>l&1 == 0 {
				continue
			}
			have := int(min(uint32(w.r[size][l]), uint32(n))) // the rest is zero
			dst := w.at(&to, l)
			if dst == nil {
				return
			}
			k := copied{lane: l, group: w.groups[l], at: uint64(uint32(w.r[to.reg][l] + to.off)), to: unsafe.Slice((*byte)(dst), n), access: &to}
			if have > 0 {
				src := w.at(&from, l)
				if src == nil {
					return
				}
				k.from = unsafe.Slice((*byte)(src), have)
				reading |= 1 << l
			}
			w.async = append(w.async, k)
		}
		if meter != nil {
			meter.count(&from, &w.r[from.reg], reading)
		}
	}, to), nil
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
