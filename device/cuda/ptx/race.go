package ptx

import "fmt"

// cell is who touched a granule of shared memory last. What was written and what is read must have
// a barrier between them, or be one thread's; threads of a warp may have a bar.warp.sync instead.
// Epochs count barriers, and go on from block to block.
type cell struct {
	written, wwarp uint32 // epochs of the block and of the warp
	read, rwarp    uint32
	writer, reader int16 // threads; a reader of many is manyReaders, or manyOf a warp since its last bar.warp.sync
}

const manyReaders = -1

// manyOf is many readers, all of one warp.
func manyOf(warp int) int16 { return int16(-2 - warp) }

// readBy says whether all who read are of a warp.
//
//go:norace
//go:nocheckptr
func (c *cell) readBy(warp int) bool {
	return c.reader == manyOf(warp) || c.reader >= 0 && int(c.reader)>>5 == warp
}

// touch looks at an access of a thread to shared memory.
//
//go:norace
//go:nocheckptr
func (w *warp) touch(lane int, at uint64, a *access) bool {
	b := w.b
	thread := int16(w.id*32 + lane)
	end := (int(at) + a.all - 1) >> b.shift
	for k := int(at) >> b.shift; k <= end; k++ {
		c := &b.cells[k]
		switch {
		case a.sync:
			c.written = max(c.written, b.first) // written, and by whom does not matter
			continue
		case !a.write && c.written < b.first:
			w.fail(lane, at, fmt.Sprintf("reads shared memory at %d, which nobody wrote", at))
			return false
		case c.written == b.epoch && c.writer != thread && (int(c.writer)>>5 != w.id || c.wwarp == w.epoch):
			w.race(lane, at, a, int(c.writer), "wrote")
			return false
		}
		other := c.read == b.epoch && c.reader != thread && (!c.readBy(w.id) || c.rwarp == w.epoch)
		switch {
		case a.write && other:
			w.race(lane, at, a, int(c.reader), "read")
			return false
		case a.write:
			c.written, c.wwarp, c.writer = b.epoch, w.epoch, thread
		case other && c.readBy(w.id):
			c.reader = manyOf(w.id)
		case other:
			c.reader = manyReaders
		default:
			c.read, c.rwarp, c.reader = b.epoch, w.epoch, thread
		}
	}
	return true
}

func (w *warp) race(lane int, at uint64, a *access, other int, did string) {
	does := "reads"
	if a.write {
		does = "writes"
	}
	who := "several threads"
	if other >= 0 {
		who = fmt.Sprintf("thread %v", w.b.thread(other))
	}
	w.fail(lane, at, fmt.Sprintf("race: %s shared memory at %d, which %s %s, with no barrier between", does, at, who, did))
}

// claim looks at a write to global memory: no other block of the launch may have written there.
//
//go:norace
//go:nocheckptr
func (w *warp) claim(a *access, lane int, al *alloc, off uint64) bool {
	if al.writers == nil {
		al.writers = make([]uint32, al.size)
	}
	b := w.b
	for k := range al.writers[off : off+uint64(a.all)] {
		c := &al.writers[off+uint64(k)]
		if *c >= b.launch && *c != b.serial {
			n := *c - b.launch
			other := [3]uint32{n % b.grid[0], n / b.grid[0] % b.grid[1], n / b.grid[0] / b.grid[1]}
			w.fail(lane, al.base+off, fmt.Sprintf("race: writes %#x, which block %v of the same launch wrote", al.base+off, other))
			return false
		}
		*c = b.serial
	}
	return true
}
