package simt

import "fmt"

// cell is who touched a granule of shared memory last. What was written and what is read must have
// a barrier between them, or be one thread's; threads of a warp may have a bar.warp.sync instead.
// Epochs count barriers, and go on from block to block.
type cell struct {
	written, wwarp uint32 // epochs of the block and of the warp
	read, rwarp    uint32
	proxies        uint32 // fences of the writer's warp before it wrote
	writer, reader int16  // threads; a reader of many is manyReaders, or manyOf a warp since its last bar.warp.sync
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
func (w *Warp) touch(lane int, at uint64, a *Access) bool {
	b := w.b
	thread := int16(w.id*32 + lane)
	end := (int(at) + a.All - 1) >> b.shift
	for k := int(at) >> b.shift; k <= end; k++ {
		c := &b.cells[k]
		if !a.Write && c.read == b.epoch && c.reader == manyReaders && c.written != b.epoch && c.written >= b.first {
			continue // many have read what is there already: there is no more to see
		}
		switch {
		case a.Sync:
			c.written = max(c.written, b.first) // written, and by whom does not matter
			continue
		case !a.Write && c.written < b.first:
			w.Fail(lane, at, fmt.Sprintf("reads shared memory at %d, which nobody wrote", at))
			return false
		case c.written == b.epoch && c.writer != thread && c.writer != copiedThread && (int(c.writer)>>5 != w.id || c.wwarp == w.epoch):
			w.race(lane, at, a, int(c.writer), "wrote")
			return false
		}
		other := c.read == b.epoch && c.reader != thread && (!c.readBy(w.id) || c.rwarp == w.epoch)
		switch {
		case a.Write && other:
			w.race(lane, at, a, int(c.reader), "read")
			return false
		case a.Write:
			c.written, c.wwarp, c.writer, c.proxies = b.epoch, w.epoch, thread, w.proxies
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

func (w *Warp) race(lane int, at uint64, a *Access, other int, did string) {
	does := "reads"
	if a.Write {
		does = "writes"
	}
	who := "several threads"
	if other >= 0 {
		who = fmt.Sprintf("thread %v", w.b.thread(other))
	}
	w.Fail(lane, at, fmt.Sprintf("race: %s shared memory at %d, which %s %s, with no barrier between", does, at, who, did))
}

// claim looks at a write to global memory: no other block of the launch may have written there.
//
//go:norace
//go:nocheckptr
func (w *Warp) claim(a *Access, lane int, al *Allocation, off uint64) bool {
	if al.writers == nil {
		al.writers = make([]uint32, al.Size)
	}
	b := w.b
	for k := range al.writers[off : off+uint64(a.All)] {
		c := &al.writers[off+uint64(k)]
		if *c >= b.launch && *c != b.serial {
			n := *c - b.launch
			other := [3]uint32{n % b.grid[0], n / b.grid[0] % b.grid[1], n / b.grid[0] / b.grid[1]}
			w.Fail(lane, al.Base+off, fmt.Sprintf("race: writes %#x, which block %v of the same launch wrote", al.Base+off, other))
			return false
		}
		*c = b.serial
	}
	return true
}
