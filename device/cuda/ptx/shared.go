package ptx

import "fmt"

// cell is who touched a granule of shared memory last. What was written and what is read must have a barrier between them, or be one thread's;
// threads of a warp may have a bar.warp.sync instead.
type cell struct {
	written, wwarp uint32 // epochs of the block and of the warp
	read, rwarp    uint32
	writer, reader int16  // threads; a reader of many is manyReaders
	serial         uint32 // of the block that wrote it at all
}

const manyReaders = -1

// touch looks at an access of a thread to shared memory.
func (w *warp) touch(lane int, at uint64, n int, write bool) bool {
	b := w.b
	thread := int16(w.id*32 + lane)
	for k := int(at) / b.k.granule; k < (int(at)+n+b.k.granule-1)/b.k.granule; k++ {
		c := &b.cells[k]
		if !write && c.serial != b.serial {
			w.fail(lane, at, fmt.Sprintf("reads shared memory at %d, which nobody wrote", at))
			return false
		}
		if c.serial == b.serial && c.written == b.epoch && c.writer != thread && (int(c.writer)>>5 != w.id || c.wwarp == w.epoch) {
			what := "reads"
			if write {
				what = "writes"
			}
			w.fail(lane, at, fmt.Sprintf("race: %s shared memory at %d, which thread %v wrote, with no barrier between", what, at, b.thread(int(c.writer))))
			return false
		}
		if write {
			if c.read == b.epoch && c.reader != thread && (c.reader == manyReaders || int(c.reader)>>5 != w.id || c.rwarp == w.epoch) {
				who := "other threads"
				if c.reader >= 0 {
					who = fmt.Sprintf("thread %v", b.thread(int(c.reader)))
				}
				w.fail(lane, at, fmt.Sprintf("race: writes shared memory at %d, which %s read, with no barrier between", at, who))
				return false
			}
			c.written, c.wwarp, c.writer, c.serial = b.epoch, w.epoch, thread, b.serial
			continue
		}
		if c.read == b.epoch && c.reader != thread {
			if c.reader == manyReaders || int(c.reader)>>5 != w.id || c.rwarp == w.epoch {
				c.reader = manyReaders
				continue
			}
		}
		c.read, c.rwarp, c.reader = b.epoch, w.epoch, thread
	}
	return true
}
