package device

import (
	"cmp"
	"math/bits"
	"slices"
	"sync"
	"unsafe"
)

// pool keeps released blocks by size class. A class is a power of two or the step halfway to the
// next, so that at most a third of a block is slack.
type pool struct {
	mu     sync.Mutex
	free   map[int][]*block // by class
	bytes  int64
	blocks int64
	allocs int64  // buffers for which blocks were given out
	reused int64  // blocks of them that were used before
	used   int64  // bytes of blocks that are given out
	peak   int64  // most that they were
	max    int64  // most bytes kept; what comes beyond is dropped
	shared shared // of large blocks
	spare  spare
	closed bool
}

const (
	alignment = 64 // a cache line, and the widest vector
	minClass  = 64
)

// classOf is the size of the block that serves n bytes.
func classOf(n int) int {
	if n <= minClass {
		return minClass
	}
	p := 1 << bits.Len(uint(n-1)) // the next power of two
	if half := p/2 + p/4; n <= half {
		return half
	}
	return p
}

// take gives a device a block for n bytes. With must it has what that asks for, or the error says
// why not: a segment, which other large blocks of the host have where they can.
func (p *pool) take(n int, dev *memory, must func(*block) bool) (*block, error) {
	class := classOf(n)
	b, open := p.find(class, must, true)
	if !open {
		return nil, ErrClosed
	}
	if b == nil {
		var err error
		if dev.isHost() && class >= SharedFrom {
			b, err = p.share(class)
		}
		if must != nil && err != nil {
			return nil, err
		}
		if b == nil {
			b = &block{mem: alignedBytes(class), class: class}
		}
		p.made(b, true)
	}
	b.dev, b.host, b.used = dev, dev.isHost(), max(b.used, n)
	return b, nil
}

// find takes a block that was released; nil where there is none. Where fits is given it is the
// first that fits. ok says that the pool is open; count, that what is found is for a buffer.
func (p *pool) find(class int, fits func(*block) bool, count bool) (b *block, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, false
	}
	l := p.free[class]
	k := len(l) - 1
	for fits != nil && k >= 0 && !fits(l[k]) {
		k--
	}
	if k < 0 {
		return nil, true
	}
	if b = l[k]; count {
		p.reused++
		p.allocs++
	}
	p.free[class] = slices.Delete(l, k, k+1)
	p.forget(b)
	p.gave(b)
	return b, true
}

// made counts a block that was made, as find had none; count says that it is for a buffer.
func (p *pool) made(b *block, count bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gave(b); count {
		p.allocs++
	}
}

// gave counts a block that is given out.
func (p *pool) gave(b *block) {
	p.used += int64(b.class)
	p.peak = max(p.peak, p.used)
}

// forget counts a block as no longer kept.
func (p *pool) forget(b *block) {
	p.blocks--
	p.bytes -= int64(b.class)
}

// put keeps a released block. It says false where it does not.
func (p *pool) put(b *block) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used -= int64(b.class)
	if p.bytes+int64(b.class) > p.max || p.closed || b.seg != nil && b.seg.once.Load() {
		if p.spare.gone(b); b.seg != nil {
			p.shared.gone(b.class)
		}
		return false
	}
	p.bytes += int64(b.class)
	if p.free == nil {
		p.free = map[int][]*block{}
	}
	p.free[b.class] = kept(p.free[b.class], b)
	p.blocks++
	return true
}

// kept adds a block to those of its class. An accelerator's are found lowest first, in whatever
// order they came back: so work that is repeated finds the same memory again, as recordings of it
// need.
func kept(l []*block, b *block) []*block {
	at := len(l)
	if b.addr != 0 {
		at, _ = slices.BinarySearchFunc(l, b.addr, func(x *block, addr uintptr) int { return cmp.Compare(addr, x.addr) })
	}
	return slices.Insert(l, at, b)
}

// empty takes out all that is kept; none has a segment.
func (p *pool) empty() (all []*block) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.free {
		all = append(all, l...)
	}
	for _, b := range all {
		p.spare.gone(b)
	}
	p.free, p.bytes, p.blocks = nil, 0, 0
	return all
}

// stats are those of the pool.
func (p *pool) stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{
		Pooled: p.blocks, PooledBytes: p.bytes, Allocs: p.allocs, Reused: p.reused, UsedBytes: p.used, PeakBytes: p.peak, SharedBytes: p.shared.bytes,
	}
}

// drain takes out all blocks that were kept.
func (p *pool) drain() []*block {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	return p.empty()
}

// alignedBytes makes n bytes that start on an alignment boundary.
func alignedBytes(n int) []byte {
	raw := make([]byte, n+alignment)
	off := int(-uintptr(unsafe.Pointer(unsafe.SliceData(raw))) & (alignment - 1))
	return raw[off : off+n : off+n]
}
