package device

import (
	"os"
	"slices"
	"sync"
	"unsafe"
)

// Piece is some bytes of a buffer of the host's.
type Piece struct {
	Buf      *Buffer
	Off, Len int
}

// Join makes one buffer of the host's out of pieces, one behind the other. Shared memory is mapped
// where the system can do that, and not copied, if all pieces are of whole pages but the last one's
// end. Then the result is [Buffer.ReadOnly], and holds a reference to each piece's buffer as long
// as it lives: nobody may write what is there. Else the bytes are copied. The caller owns the one
// reference.
func Join(pieces ...Piece) (*Buffer, error) { return join(os.Getpagesize(), pieces) }

func join(page int, pieces []Piece) (*Buffer, error) {
	total := 0
	for _, p := range pieces {
		if p.Buf == nil {
			return nil, &Error{host.id, "join", ErrBounds}
		}
		mem, err := p.Buf.Host()
		if err != nil {
			return nil, err
		}
		if p.Off < 0 || p.Len < 0 || p.Off > len(mem) || p.Len > len(mem)-p.Off {
			return nil, &Error{host.id, "join", ErrBounds}
		}
		total += p.Len
	}
	if g := host.joins.mapped(page, pieces, total); g != nil {
		held := make([]*Buffer, len(pieces))
		for i, p := range pieces {
			held[i] = p.Buf.Retain()
		}
		return Foreign(g.mem[:total], nil, func() {
			for _, b := range held {
				_ = b.Release() // ours
			}
			host.joins.give(g)
		}), nil
	}
	b, err := host.Alloc(total)
	if err != nil {
		return nil, err
	}
	to := b.mem()
	for _, p := range pieces {
		to = to[copy(to, p.Buf.mem()[p.Off:][:p.Len]):]
	}
	return b, nil
}

// joins keeps the mappings of pieces that were joined: a loop joins the same ones again and again,
// and to map them costs more than to copy small ones.
type joins struct {
	mu   sync.Mutex
	idle []*joint // the latest last
}

// joint is pieces of shared memory that are mapped one behind the other.
type joint struct {
	of  []origin
	mem []byte
}

// origin is where a piece is from. What is of the same memory, at the same place, is the same bytes
// for ever: the pointer keeps another memory from having that identity.
type origin struct {
	of any
	at unsafe.Pointer
	n  int
}

// What is kept of mappings that nobody uses: they hold memory that may be given up elsewhere.
const (
	maxJoints     = 16
	maxJointBytes = 256 << 20
)

// mapped maps pieces; nil where they must be copied.
func (j *joins) mapped(page int, pieces []Piece, total int) *joint {
	of := make([]origin, len(pieces))
	for i, p := range pieces {
		at := unsafe.Pointer(unsafe.SliceData(p.Buf.mem()[p.Off:]))
		last := i == len(pieces)-1
		if of[i].of = p.Buf.sharedMemory(); of[i].of == nil || p.Len == 0 || uintptr(at)%uintptr(page) != 0 || !last && p.Len%page != 0 {
			return nil
		}
		of[i].at, of[i].n = at, (p.Len+page-1)/page*page
	}
	if len(pieces) == 0 {
		return nil
	}
	j.mu.Lock()
	for i, g := range j.idle {
		if slices.Equal(g.of, of) {
			j.idle = slices.Delete(j.idle, i, i+1)
			j.mu.Unlock()
			return g
		}
	}
	j.mu.Unlock()
	mem, err := mapTogether(of, (total+page-1)/page*page)
	if err != nil {
		return nil // it is copied
	}
	return &joint{of, mem}
}

// give takes back a mapping that nobody reads any more.
func (j *joins) give(g *joint) {
	j.mu.Lock()
	j.idle = append(j.idle, g)
	bytes := 0
	for _, g := range j.idle {
		bytes += len(g.mem)
	}
	var gone []*joint
	for len(j.idle) > maxJoints || bytes > maxJointBytes {
		bytes -= len(j.idle[0].mem)
		gone = append(gone, j.idle[0])
		j.idle = slices.Delete(j.idle, 0, 1)
	}
	j.mu.Unlock()
	for _, g := range gone {
		unmapTogether(g.mem)
	}
}

// sharedMemory is what the buffer lies in that can be mapped once more, nil if it is not such.
func (b *Buffer) sharedMemory() any {
	switch {
	case b.blk == nil:
		return nil
	case b.blk.seg != nil:
		return b.blk.seg
	}
	return b.blk.of
}
