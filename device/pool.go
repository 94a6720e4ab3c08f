package device

import (
	"math/bits"
	"sync"
	"unsafe"
)

// pool keeps released blocks by size class. A class is a power of two or the step halfway to the next, so that at
// most a third of a block is slack.
type pool struct {
	mu     sync.Mutex
	free   map[int][]*block // by class
	bytes  int64
	blocks int64
	max    int64 // most bytes kept; what comes beyond is dropped
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

// take gives a block for n bytes and says whether it was used before.
func (p *pool) take(n int) (*block, bool) {
	class := classOf(n)
	p.mu.Lock()
	if l := p.free[class]; len(l) > 0 {
		b := l[len(l)-1]
		l[len(l)-1] = nil
		p.free[class] = l[:len(l)-1]
		p.bytes -= int64(class)
		p.blocks--
		p.mu.Unlock()
		return b, true
	}
	p.mu.Unlock()
	return &block{mem: alignedBytes(class), class: class}, false
}

func (p *pool) put(b *block) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.bytes+int64(b.class) > p.max {
		return
	}
	if p.free == nil {
		p.free = map[int][]*block{}
	}
	p.free[b.class] = append(p.free[b.class], b)
	p.bytes += int64(b.class)
	p.blocks++
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed, p.free, p.bytes, p.blocks = true, nil, 0, 0
}

// alignedBytes makes n bytes that start on an alignment boundary.
func alignedBytes(n int) []byte {
	raw := make([]byte, n+alignment)
	off := int(-uintptr(unsafe.Pointer(unsafe.SliceData(raw))) & (alignment - 1))
	return raw[off : off+n : off+n]
}
