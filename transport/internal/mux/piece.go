package mux

import (
	"context"
	"io"
	"math/bits"
	"sync"

	"github.com/weft-project/weft/transport/internal/wire"
)

// piece is a chunk that waits on its stream: a message or a part of it, or the end.
type piece struct {
	kind, flags, lane byte
	b                 []byte
	next              *piece
}

// Pieces keeps pieces for the links of a network. It is safe for concurrent use.
type Pieces struct{ pools [8]sync.Pool } // each of pieces with twice the room; the last of pieceMax

const leastRoom = pieceMax >> 7 // bytes

// NewPieces makes an empty one.
func NewPieces() *Pieces {
	p := &Pieces{}
	for i := range p.pools {
		p.pools[i].New = func() any { return &piece{b: make([]byte, leastRoom<<i)} }
	}
	return p
}

// pool is of the pieces with the least room that is enough.
func (p *Pieces) pool(size int) *sync.Pool {
	return &p.pools[bits.Len(uint(max(size-1, 0)/leastRoom))]
}

// newPiece makes a piece with room for its body, of which a chunk has pieceMax bytes at most. All
// that live count against MaxQueued.
func (l *Session) newPiece(h chunk) *piece {
	p := l.Pieces.pool(h.size).Get().(*piece)
	p.kind, p.flags, p.lane = h.kind, h.flags, h.lane
	p.b = p.b[:h.size]
	l.queued.Add(p.memory())
	return p
}

func (p *piece) memory() int64 { return int64(cap(p.b)) + pieceCost }

// free takes a piece back.
func (l *Session) free(p *piece) {
	l.queued.Add(-p.memory())
	p.next, p.b = nil, p.b[:cap(p.b)]
	l.Pieces.pool(cap(p.b)).Put(p)
}

// cost is what a piece counts against its stream's window.
func cost(size int) int64 { return int64(size) + pieceCost }

// pieceReader reads a message that may have come in several pieces. It is the receiver's.
type pieceReader struct {
	s    *stream
	c    context.Context
	p    *piece
	left []byte // of p
	err  error  // why there is no further piece
}

func (r *pieceReader) Read(b []byte) (int, error) {
	for len(r.left) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		if r.p.flags&flagMore == 0 {
			return 0, io.EOF
		}
		r.drop()
		p, err := r.s.next(r.c)
		if err == nil && (p.kind != chunkMessage || p.flags&flagExternal != 0) {
			r.s.link.discard(p)
			err = wire.FrameErr("message", "its rest", "kind %d", p.kind)
		}
		if err != nil {
			r.err = err
			return 0, err
		}
		r.p, r.left = p, p.b
	}
	n := copy(b, r.left)
	r.left = r.left[n:]
	return n, nil
}

// drop frees the piece.
func (r *pieceReader) drop() {
	if r.p != nil {
		r.s.link.free(r.p)
		r.p, r.left = nil, nil
	}
}

// whole says whether the message was read to its end and not beyond.
func (r *pieceReader) whole() bool { return len(r.left) == 0 && r.p.flags&flagMore == 0 }
