package device

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
)

// Segment is memory of the host's that another process can map for reading. A buffer of SharedFrom
// bytes and more has one for itself, where the system can do that, from its first byte on. It lives
// as long as the buffer, and then as the pool likes.
type Segment struct {
	mem  []byte
	file memfile
	once atomic.Bool // the memory goes back to the system with the buffer

	mu      sync.Mutex // also for the block's used
	retired bool
	after   map[*func()]bool
}

// SharedFrom is the least size of a buffer that has a segment: a copy of a smaller one is cheaper
// than what sharing costs.
const SharedFrom = 64 << 10

// Segment is the shared memory in which the buffer lies, if it does. It stays as long as the caller
// holds a reference to the buffer.
func (b *Buffer) Segment() (s *Segment, ok bool) {
	if b.blk == nil || b.blk.seg == nil || b.released() {
		return nil, false
	}
	return b.blk.seg, true
}

// Show gives a descriptor with which another process can map the buffer's segment. It sees the
// buffer's bytes there, and zeros behind them. It cannot write them, nor can who opens the file
// again. The file is the caller's to close; it never changes in size.
//
// Nobody can take back what was shown: the process sees what is written there later, too. With once
// that is the same buffer's alone: afterwards the memory goes back to the system. Without it the
// pool uses it again.
func (b *Buffer) Show(once bool) (*os.File, error) {
	g, ok := b.Segment()
	if !ok {
		return nil, &Error{b.dev().ID(), "show", errors.ErrUnsupported}
	}
	if once {
		g.once.Store(true)
	}
	g.hideBehind(b)
	return g.file.open()
}

// hideBehind clears what buffers that were here before have left behind b.
func (g *Segment) hideBehind(b *Buffer) {
	g.mu.Lock() // it may be shown to two at once
	defer g.mu.Unlock()
	clear(g.mem[b.n:max(b.n, b.blk.used)])
	b.blk.used = b.n
}

// Bytes is the segment's size, which never changes.
func (g *Segment) Bytes() int { return len(g.mem) }

// AfterRetire has f called, on a goroutine of its own, when the memory was given back to the
// system: nothing will lie there again. stop undoes that, where it is not too late. Who passed the
// segment on tells, as the memory is free when nobody has it mapped.
func (g *Segment) AfterRetire(f func()) (stop func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.retired {
		go f()
		return func() {}
	}
	if g.after == nil {
		g.after = map[*func()]bool{}
	}
	g.after[&f] = true
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.after, &f)
	}
}

// retire gives the memory back. Nobody here uses it any more.
func (g *Segment) retire() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.file.unmap(g.mem)
	g.retired = true
	for f := range g.after {
		go (*f)()
	}
	g.after = nil
}

// shared is how much of a pool's memory lies in segments. The pool's lock guards it.
type shared struct {
	bytes, max  int64
	files, most int
	seals       int   // that each has
	err         error // why the system has no such memory
}

// AllocShared is the host's Alloc of a buffer that has a segment, of SharedFrom bytes at least. The
// error says why there is none.
func AllocShared(n int) (*Buffer, error) {
	return host.alloc(max(n, SharedFrom), hasSegment)
}

func hasSegment(b *block) bool { return b.seg != nil }

// share makes a block with a segment of its own. Where the system cannot, or there are enough of
// them, the error says so.
func (p *pool) share(class int) (*block, error) {
	free, err := p.reserve(class)
	for _, b := range free {
		b.seg.retire()
	}
	if err != nil {
		return nil, err
	}
	file, mem, err := newMemfile(class, p.shared.seals)
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.shared.gone(class)
		if errors.Is(err, errors.ErrUnsupported) { // or else there is none for now
			p.shared.err = err
		}
		return nil, err
	}
	return &block{mem: mem, class: class, seg: &Segment{mem: mem, file: file}}, nil
}

// reserve counts a segment that is to be made, if it fits. For that it takes others out of what is
// kept, the oldest of a class first.
func (p *pool) reserve(class int) (free []*block, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.shared
	if s.err != nil {
		return nil, s.err
	}
	fits := func() bool { return s.files < s.most && s.bytes+int64(class) <= s.max }
	for c, l := range p.free {
		n := 0
		for n < len(l) && l[n].seg != nil && !fits() {
			p.forget(l[n])
			s.gone(c)
			n++
		}
		free = append(free, l[:n]...)
		p.free[c] = slices.Delete(l, 0, n)
	}
	if !fits() {
		return free, fmt.Errorf("%w: at most %d pieces of %d MiB in all can be shared", ErrMemory, s.most, s.max>>20)
	}
	s.files++
	s.bytes += int64(class)
	return free, nil
}

// gone counts a segment that is no longer there.
func (s *shared) gone(class int) {
	s.files--
	s.bytes -= int64(class)
}
