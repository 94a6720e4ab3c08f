package mux

import (
	"context"
	"io"
	"sync"

	"github.com/weft-project/weft/transport/internal/wire"
)

const keepPiece = 1 << 10 // larger memory of a piece is not kept

// piece is a chunk that waits on its stream: a message or a part of it, or the end.
type piece struct {
	kind, flags, lane byte
	b                 []byte
	next              *piece
}

// Pieces keeps small pieces for the links of a network. It is safe for concurrent use.
type Pieces struct{ pool sync.Pool }

// NewPieces makes an empty one.
func NewPieces() *Pieces {
	p := &Pieces{}
	p.pool.New = func() any { return &piece{b: make([]byte, 0, 256)} }
	return p
}

// newPiece makes a piece with room for its body. Pieces are made often, and most are small. All
// that live count against MaxQueued.
func (l *Session) newPiece(h chunk) *piece {
	p := l.Pieces.pool.Get().(*piece)
	p.kind, p.flags, p.lane = h.kind, h.flags, h.lane
	if cap(p.b) < h.size {
		p.b = make([]byte, h.size)
	}
	p.b = p.b[:h.size]
	l.queued.Add(p.memory())
	return p
}

func (p *piece) memory() int64 { return int64(cap(p.b)) + pieceCost }

// free takes a piece back.
func (l *Session) free(p *piece) {
	l.queued.Add(-p.memory())
	if cap(p.b) > keepPiece {
		return
	}
	p.next, p.b = nil, p.b[:0]
	l.Pieces.pool.Put(p)
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
