package simt

import (
	"math/bits"
	"strings"
)

// block is the threads that share memory. It is used for one block after another.
type block struct {
	proc    *Processor
	k       *Kernel
	params  []byte
	id      [3]uint32
	dim     [3]uint32
	grid    [3]uint32
	dynamic int
	meter   *Traffic // or nil

	warps   []*Warp
	shared  []byte
	cells   []cell // one for each granule of shared
	local   []byte // of every thread
	shift   uint   // a granule has 1<<shift bytes
	epoch   uint32
	first   uint32  // epoch of this block
	launch  uint32  // number of the launch's first block, among all of the machine
	serial  uint32  // and of this
	arrived [16]int // threads that have come to a barrier and do not wait
	counts  [16]int // of the threads that a barrier's phase is for; 0: all, or nobody has come

	mbarriers map[uint64]*mbarrier // by their address
	changes   int64                // of mbarriers, and of barriers for a number of threads
	polls     int64                // of mbarriers

	steps int64
	limit int64
	fault *Fault
}

func newBlock(p *Processor, k *Kernel, threads, shared int) *block {
	b := &block{proc: p, k: k, shared: make([]byte, shared)}
	b.shift = uint(bits.TrailingZeros(uint(k.Granule)))
	b.cells = make([]cell, (shared+k.Granule-1)/k.Granule)
	b.local = make([]byte, k.Local*((threads+31)&^31))
	for id := range (threads + 31) / 32 {
		w := &Warp{b: b, id: id, Regs: make([]Lanes, len(k.Template)), Preds: make([]uint32, k.Preds)}
		for r, v := range k.Template {
			w.Each(r, Full, v)
		}
		b.warps = append(b.warps, w)
	}
	return b
}

func (b *block) thread(n int) [3]uint32 {
	t := uint32(n)
	return [3]uint32{t % b.dim[0], t / b.dim[0] % b.dim[1], t / b.dim[0] / b.dim[1]}
}

// execute does one block; first says that the launch begins.
func (b *block) execute(first bool) {
	b.reset(first)
	var vain int // rounds in which nothing came of what was asked for
	for b.fault == nil {
		moved, live, polls, changes, steps := false, false, b.polls, b.changes, b.steps
		for _, w := range b.warps {
			moved = w.runSlice() || moved
			live = live || len(w.strands) > 0
		}
		switch {
		case b.fault != nil:
			return
		case !live:
			b.unfinished()
			return
		case b.release():
			vain = 0
		case moved && (b.polls == polls || b.changes != changes || b.steps-steps > vainSteps):
			vain = 0
		case moved && vain < vainRounds:
			vain++
		case b.fault == nil:
			b.stuck()
		}
	}
}

// A block in which so many rounds were of few steps, and no mbarrier changed, does not go on.
const (
	vainRounds = 64
	vainSteps  = 4096
)

// reset brings the block to its beginning, with memory that nobody wrote.
func (b *block) reset(first bool) {
	fill(b.shared)
	fill(b.local)
	b.epoch++
	b.first = b.epoch
	b.arrived, b.counts = [16]int{}, [16]int{}
	b.mbarriers = nil
	left := int(b.dim[0] * b.dim[1] * b.dim[2])
	for _, w := range b.warps {
		n := min(left, 32)
		left -= n
		w.born = Full >> (32 - n)
		w.Live = w.born
		w.strands = append(w.strands[:0], strand{m: w.Live})
		w.epoch++
		w.async, w.groups = w.async[:0], [32]int{}
		w.products, w.productGroup, w.fenced = w.products[:0], 0, false
		w.last = &b.proc.nowhere
		for _, s := range b.k.Special {
			if first || strings.HasPrefix(s.Name, "%ctaid") { // nothing else changes from block to block
				b.special(w, s)
			}
		}
	}
}

// special fills a register of the machine.
func (b *block) special(w *Warp, s Special) {
	r := &w.Regs[s.Reg]
	axis := int(s.Name[len(s.Name)-1] - 'x')
	for l := range r {
		one := uint32(1) << l
		var v uint32
		switch s.Name {
		case "%tid.x", "%tid.y", "%tid.z":
			v = b.thread(w.id*32 + l)[axis]
		case "%ntid.x", "%ntid.y", "%ntid.z":
			v = b.dim[axis]
		case "%ctaid.x", "%ctaid.y", "%ctaid.z":
			v = b.id[axis]
		case "%nctaid.x", "%nctaid.y", "%nctaid.z":
			v = b.grid[axis]
		case "%laneid":
			v = uint32(l)
		case "%warpid":
			v = uint32(w.id)
		case "%nwarpid":
			v = uint32(len(b.warps))
		case "%nsmid":
			v = 1
		case "%lanemask_eq":
			v = one
		case "%lanemask_lt":
			v = one - 1
		case "%lanemask_le":
			v = one | (one - 1)
		case "%lanemask_gt":
			v = ^(one | (one - 1))
		case "%lanemask_ge":
			v = ^(one - 1)
		case "%dynamic_smem_size":
			v = uint32(b.dynamic)
		case "%total_smem_size":
			v = uint32(len(b.shared))
		}
		r[l] = uint64(v)
	}
}

// fill makes memory what nobody wrote.
func fill(b []byte) {
	if len(b) == 0 {
		return
	}
	b[0] = 0xCD
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}
