package device

import (
	"os"
	"sync/atomic"
)

// Segment is a stretch of the host's memory that another process can map: buffers of SharedFrom bytes and more lie in
// one, where the system can do that. It lives as long as a buffer lies in it, and then as the pool likes.
type Segment struct {
	mem     []byte
	file    memfile
	next    int // all beyond was never given out; guarded, as live is, by the lock of the pool
	live    int // blocks that are in use
	retired atomic.Bool
}

// SharedFrom is the least size of a buffer that lies in a segment: a copy of a smaller one is cheaper than what sharing
// costs.
const SharedFrom = 64 << 10

const segmentBytes = 64 << 20 // a larger block has a segment of its own; untouched pages cost nothing

// Segment says where in shared memory the buffer lies, if it does. The segment stays as long as the caller holds
// a reference to the buffer.
func (b *Buffer) Segment() (s *Segment, off int, ok bool) {
	if b.blk == nil || b.blk.seg == nil || b.released() {
		return nil, 0, false
	}
	return b.blk.seg, b.blk.off, true
}

// Bytes is the segment's size, which never changes.
func (g *Segment) Bytes() int { return len(g.mem) }

// Open gives a descriptor with which another process can map the segment, for reading only. The file is the caller's to
// close; it never changes in size. Only who holds a buffer in the segment may call it.
func (g *Segment) Open() (*os.File, error) { return g.file.open() }

// Retired says that the segment's memory was given back: nothing will lie there again. Who passed it on tells.
func (g *Segment) Retired() bool { return g.retired.Load() }

// shared cuts blocks out of segments. The pool's lock guards it.
type shared struct {
	segments []*Segment
	bytes    int64 // of all segments
	max      int64
	broken   bool // the system has no such memory
}

// cut gives a block of that class, nil where there is no room. Of the memory that was touched before, what is all free comes first.
func (s *shared) cut(class int, p *pool) *block {
	if s.broken || s.max == 0 {
		return nil
	}
	for _, g := range s.segments {
		if b := g.cut(class); b != nil {
			return b
		}
	}
	for _, g := range s.segments {
		if g.live == 0 && len(g.mem) >= class {
			p.recall(g)
			g.next = 0
			return g.cut(class)
		}
	}
	if g := s.grow(max(class, segmentBytes), p); g != nil {
		return g.cut(class)
	}
	return nil
}

func (g *Segment) cut(class int) *block {
	if len(g.mem)-g.next < class {
		return nil
	}
	b := &block{mem: g.mem[g.next : g.next+class : g.next+class], class: class, seg: g, off: g.next}
	g.next += class
	return b
}

// grow makes a segment of n bytes, for which it gives up others that are free but too small.
func (s *shared) grow(n int, p *pool) *Segment {
	kept := s.segments[:0]
	for _, g := range s.segments {
		if s.bytes+int64(n) <= s.max || g.live > 0 {
			kept = append(kept, g)
			continue
		}
		p.recall(g)
		s.bytes -= int64(len(g.mem))
		g.retired.Store(true)
		g.file.unmap(g.mem)
	}
	clear(s.segments[len(kept):])
	s.segments = kept
	if s.bytes+int64(n) > s.max {
		return nil
	}
	file, mem, err := newMemfile(n)
	if err != nil {
		s.broken = len(s.segments) == 0 // or else it is full for now
		return nil
	}
	g := &Segment{mem: mem, file: file}
	s.segments = append(s.segments, g)
	s.bytes += int64(n)
	return g
}
