package simt

import (
	"fmt"
	"math/bits"
)

// mbarrier is a barrier that lies in shared memory. Its phase is over when all have arrived, and
// all bytes have come that were expected.
type mbarrier struct {
	count, left int    // arrivals of a phase, and those that are still to come
	bytes       int    // still to come
	phase       uint32 // that is under way
	copies      []tileCopy
	warp        int    // that made it
	epoch       uint32 // of the block then
}

// mbarrier finds the barrier at an address of shared memory, or fails.
func (w *Warp) mbarrier(lane int, at uint64) *mbarrier {
	m := w.b.mbarriers[uint64(uint32(at))]
	switch {
	case m == nil:
		w.Fail(lane, at, fmt.Sprintf("no mbarrier was made at %d of shared memory", uint32(at)))
	case m.epoch == w.b.epoch && m.warp != w.id:
		w.Fail(lane, at, fmt.Sprintf("race: uses an mbarrier that warp %d made, with no barrier between", m.warp))
		return nil
	}
	return m
}

// mostArrivals is how many a barrier may be for.
const mostArrivals = 1<<20 - 1

// MakeBarrier is mbarrier.init.
func (w *Warp) MakeBarrier(lane int, at uint64, count uint32) {
	at = uint64(uint32(at))
	switch {
	case at%8 != 0 || at+8 > uint64(len(w.b.shared)):
		w.Fail(lane, at, fmt.Sprintf("an mbarrier at %d of the block's %d bytes of shared memory; it has 8 bytes, aligned", at, len(w.b.shared)))
	case count == 0 || count > mostArrivals:
		w.Fail(lane, at, fmt.Sprintf("an mbarrier for %d arrivals; from 1 to %d are allowed", count, mostArrivals))
	case w.b.mbarriers[at] != nil:
		w.Fail(lane, at, "an mbarrier is made where there is one")
	default:
		if w.b.mbarriers == nil {
			w.b.mbarriers = map[uint64]*mbarrier{}
		}
		w.b.mbarriers[at] = &mbarrier{count: int(count), left: int(count), warp: w.id, epoch: w.b.epoch}
		w.b.changes++
	}
}

// EndBarrier is mbarrier.inval.
func (w *Warp) EndBarrier(lane int, at uint64) {
	if w.mbarrier(lane, at) != nil {
		delete(w.b.mbarriers, uint64(uint32(at)))
	}
}

// Arrive is mbarrier.arrive of a lane, which expects more bytes before, and stands for some
// arrivals. It gives the phase that it arrived in.
func (w *Warp) Arrive(lane int, at uint64, arrivals, bytes uint32) (phase uint32) {
	m := w.mbarrier(lane, at)
	if m == nil {
		return 0
	}
	if arrivals > uint32(m.left) {
		w.Fail(lane, at, fmt.Sprintf("%d more arrivals at an mbarrier than the %d that its phase has left", arrivals, m.left))
		return 0
	}
	phase = m.phase
	m.bytes += int(bytes)
	m.left -= int(arrivals)
	w.b.changes++
	m.turn()
	return phase
}

// turn begins the next phase where one is over.
func (m *mbarrier) turn() {
	if m.left == 0 && m.bytes == 0 {
		m.phase++
		m.left = m.count
	}
}

// Passed says whether the phase of a parity is over. Copies come when they are asked for here, and
// no earlier, so that who does not ask sees it.
func (w *Warp) Passed(lane int, at uint64, parity uint32) bool {
	m := w.mbarrier(lane, at)
	if m == nil {
		return false
	}
	for _, c := range m.copies {
		c.land(w.b)
		m.bytes -= c.m.size()
		w.b.changes++
	}
	m.copies = m.copies[:0]
	if m.bytes < 0 {
		w.Fail(lane, at, fmt.Sprintf("%d more bytes came to an mbarrier than it expected", -m.bytes))
		return false
	}
	m.turn()
	return m.phase&1 != parity&1
}

// tileCopy is a copy of a tile to shared memory under way.
type tileCopy struct {
	m  *tensorMap
	at [mapDims]int32 // the tile's first element
	to uint64
}

// CopyTile is cp.async.bulk.tensor of a lane: from an array that the map at an address describes,
// from a place in it, to shared memory, of which an mbarrier is told.
func (w *Warp) CopyTile(lane int, to, mapAt, barrier uint64, at [mapDims]int32) {
	raw := w.bytesAt(lane, mapAt, mapBytes, 64)
	if raw == nil {
		return
	}
	t, err := decodeMap(raw)
	if err != nil {
		w.Fail(lane, mapAt, err.Error())
		return
	}
	bar := w.mbarrier(lane, barrier)
	if bar == nil {
		return
	}
	to = uint64(uint32(to))
	if n := t.size(); to%128 != 0 || to+uint64(n) > uint64(len(w.b.shared)) {
		w.Fail(lane, to, fmt.Sprintf("a tile of %d bytes to %d of the block's %d bytes of shared memory, at a multiple of 128", n, to, len(w.b.shared)))
		return
	}
	if al := w.b.proc.Memory.At(t.base); al == nil || t.reach() > al.Size-(t.base-al.Base) {
		w.Fail(lane, t.base, fmt.Sprintf("a map of %d bytes that are not there: %s", t.reach(), w.b.proc.Memory.near(t.base)))
		return
	}
	w.b.unwrite(to, t.size())
	bar.copies = append(bar.copies, tileCopy{t, at, to})
}

// bytesAt gives bytes at a generic address, or nil after a fault.
func (w *Warp) bytesAt(lane int, q uint64, n, align int) []byte {
	switch {
	case q%uint64(align) != 0:
		w.Fail(lane, q, fmt.Sprintf("%#x is not aligned to %d bytes", q, align))
	case SpaceAt(q) == Parameter:
		if off := q - ParameterWindow; off+uint64(n) <= uint64(len(w.b.params)) {
			return w.b.params[off : off+uint64(n)]
		}
		w.Fail(lane, q, "parameters end before")
	case SpaceAt(q) == Global:
		raw, err := w.b.proc.Memory.Bytes(q, n)
		if err == nil {
			return raw
		}
		w.Fail(lane, q, err.Error())
	default:
		w.Fail(lane, q, "neither a parameter nor global memory")
	}
	return nil
}

// unwrite makes shared memory as if nobody had written it.
func (b *block) unwrite(at uint64, n int) {
	fill(b.shared[at : at+uint64(n)])
	for k := int(at) >> b.shift; k <= (int(at)+n-1)>>b.shift; k++ {
		b.cells[k] = cell{}
	}
}

// copiedThread is the writer of what a copy of a tile has brought: no thread of the block.
const copiedThread = -1

// land does the copy.
func (c *tileCopy) land(b *block) {
	t := c.m
	clear(b.shared[c.to : c.to+uint64(t.size())])
	al := b.proc.Memory.At(t.base)
	wide := uint64(t.box[0]) * elementBytes
	to := c.to
	for w := range int64(t.box[3]) {
		for z := range int64(t.box[2]) {
			for y := range int64(t.box[1]) {
				from, ok := t.line(int64(c.at[1])+y, int64(c.at[2])+z, int64(c.at[3])+w)
				for x := int64(0); ok && al != nil && x < int64(t.box[0]); x++ {
					col := int64(c.at[0]) + x
					if col < 0 || uint64(col) >= t.dims[0] {
						continue
					}
					q := from + uint64(col)*elementBytes - al.Base
					copy(b.shared[swizzled(to+uint64(x)*elementBytes, 7):][:elementBytes], al.Mem[q:q+elementBytes])
				}
				to += wide
			}
		}
	}
	for k := int(c.to) >> b.shift; k <= int(c.to+uint64(t.size())-1)>>b.shift; k++ {
		b.cells[k] = cell{written: b.first, writer: copiedThread}
	}
}

// swizzled is where a byte of an address lies in rows of 128 bytes, of which mask 7 changes the
// places of pieces of 16 bytes: of 64 it is 3, of 32 it is 1, and 0 of none.
func swizzled(at, mask uint64) uint64 { return at ^ at>>7&mask<<4 }

// unfinished is the fault of a block that ends while something is under way.
func (b *block) unfinished() {
	for _, m := range b.mbarriers {
		if len(m.copies) > 0 {
			b.warps[0].Fail(0, 0, "the block ends while a tile is copied to its shared memory")
			return
		}
	}
	for _, w := range b.warps {
		if len(w.products) > 0 {
			w.Fail(bits.TrailingZeros32(w.born), 0, "the block ends while matrices are multiplied")
			return
		}
	}
}
