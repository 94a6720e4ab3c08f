package cudaipc

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/wire"
)

// most is the most bytes of a piece: large enough that its words cost nothing, and small enough
// that one is read while others are written.
func (b *outbox) most() int { return min(8<<20, b.bytes/4) }

// outgoing is a transfer at its sender.
type outgoing struct {
	h       *channel
	id      uint64
	bytes   uint64
	tensors []wire.Tensor // that this lane moves
	rest    lane.Transfer // of the others; nil where there are none
	lane    byte          // of rest
	eager   bool          // its one piece has a place
	at      int

	wake chan struct{} // a token: what follows has changed
	// Guarded by h.mu.
	gone  bool
	ended error
}

var errUnwanted = fmt.Errorf("transport: %w: the peer does not want the tensors", wire.ErrReset)

func (t *outgoing) endLocked(err error) {
	if t.ended == nil {
		t.ended = err
	}
	lane.Wake(t.wake)
}

func (h *channel) Begin(ts []wire.Tensor) (lane.Transfer, error) {
	t := &outgoing{h: h, wake: make(chan struct{}, 1)}
	var rest []wire.Tensor
	var restBytes int64
	for i := range ts {
		switch x := &ts[i]; {
		case lane.Hauled(x):
			t.tensors = append(t.tensors, *x)
			t.bytes += uint64(x.Buf.Len())
		case x.Buf != nil && x.Buf.Len() > 0:
			rest = append(rest, *x)
			restBytes += int64(x.Buf.Len())
		}
	}
	if rest != nil {
		var err error
		if t.rest, t.lane, err = h.env.Begin(h, rest, restBytes); err != nil {
			return nil, err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.usableLocked(); err != nil {
		if t.rest != nil {
			defer t.rest.Abandon() // it may say something
		}
		return nil, err
	}
	t.id = h.nextID
	h.nextID++
	h.out[t.id] = t
	t.reserveLocked()
	return t, nil
}

// reserveLocked gives a small transfer its place at once, where it leaves enough for those that are
// asked for.
func (t *outgoing) reserveLocked() {
	var box *outbox
	for i := range t.tensors {
		if b := t.boxLocked(i); box == nil {
			box = b
		} else if b != box {
			return
		}
	}
	if t.bytes > uint64(box.most()) {
		return
	}
	n := rounded(int(t.bytes))
	if box.eager+n > box.bytes/2 {
		return
	}
	if t.at, t.eager = box.room.take(n); t.eager {
		box.eager += n
		box.pieces[uint64(t.at)] = slot{n: int(t.bytes), eager: true}
	}
}

// boxLocked is the outbox for a tensor: its accelerator's, or, where the peer does not use that,
// the first that there is for the message.
func (t *outgoing) boxLocked(i int) *outbox {
	if p, ok := t.h.shared(&t.tensors[i]); ok {
		return t.h.boxLocked(p)
	}
	for k := range t.tensors {
		if p, ok := t.h.shared(&t.tensors[k]); ok {
			return t.h.boxLocked(p)
		}
	}
	return nil
}

func (t *outgoing) Ticket() []byte {
	k := ticket{id: t.id, bytes: t.bytes, eager: t.eager, lane: t.lane}
	if t.rest != nil {
		k.rest = t.rest.Ticket()
	}
	return k.append(nil)
}

func (t *outgoing) Abandon() {
	if t.rest != nil {
		t.rest.Abandon()
	}
	t.finish(context.Canceled)
}

// finish ends the transfer, and tells the peer where something is missing.
func (t *outgoing) finish(err error) {
	h := t.h
	h.mu.Lock()
	delete(h.out, t.id)
	if t.eager {
		h.dropLocked(t.boxLocked(0), uint64(t.at))
	}
	h.mu.Unlock()
	if err != nil {
		h.say(word{what: wordOver, a: t.id})
	}
}

// dropLocked takes back a place of which the peer was not told.
func (h *channel) dropLocked(b *outbox, at uint64) {
	s, ok := b.pieces[at]
	if !ok {
		return
	}
	delete(b.pieces, at)
	b.room.give(int(at), s.n)
	if s.eager {
		b.eager -= rounded(s.n)
	}
	close(b.bell)
	b.bell = make(chan struct{})
}

func (t *outgoing) Deliver(c context.Context) error {
	c, cancel := context.WithCancel(c)
	defer cancel()
	other := wire.Async(t.rest != nil, func() error {
		err := t.rest.Deliver(c)
		if err != nil {
			cancel()
		}
		return err
	})
	err := t.send(c)
	if err != nil {
		cancel()
	} else {
		t.h.env.Count.Sent.Add(t.bytes)
	}
	t.finish(err)
	return errors.Join(err, other())
}

// send puts all pieces into outboxes.
func (t *outgoing) send(c context.Context) error {
	if err := t.asked(c); err != nil {
		return err
	}
	for i, off := 0, 0; i < len(t.tensors); {
		t.h.mu.Lock()
		box := t.boxLocked(i)
		var parts []lane.Span
		n := 0
		j, o := i, off
		for j < len(t.tensors) && n < box.most() && t.boxLocked(j) == box {
			k := min(t.tensors[j].Buf.Len()-o, box.most()-n)
			parts = append(parts, lane.Span{At: int64(o), Buf: t.tensors[j].Buf})
			n += k
			if o += k; o == t.tensors[j].Buf.Len() {
				j, o = j+1, 0
			}
		}
		t.h.mu.Unlock()
		if err := t.piece(c, box, parts, n); err != nil {
			return err
		}
		i, off = j, o
	}
	return nil
}

// asked waits until the receiver fetches, where nothing may go before.
func (t *outgoing) asked(c context.Context) error {
	for !t.eager {
		t.h.mu.Lock()
		gone, err := t.gone, t.ended
		t.h.mu.Unlock()
		if gone || err != nil {
			return err
		}
		select {
		case <-t.wake:
		case <-c.Done():
			return context.Cause(c)
		}
	}
	return nil
}

// piece copies n bytes of buffers, each from its span's place on, into an outbox, and tells the
// peer when they lie there.
func (t *outgoing) piece(c context.Context, b *outbox, parts []lane.Span, n int) error {
	at, err := t.place(c, b, n)
	if err != nil {
		return err
	}
	err = fill(b, at, parts, n)
	h := t.h
	h.mu.Lock()
	if err == nil {
		err = t.ended
	}
	if err == nil {
		s := b.pieces[uint64(at)]
		s.told = true
		b.pieces[uint64(at)] = s
		t.eager = false // the place is the peer's to give back
	} else {
		h.dropLocked(b, uint64(at))
		t.eager = false
	}
	h.mu.Unlock()
	h.copying.Done()
	if err == nil {
		h.say(word{wordPiece, t.id, b.number<<48 | uint64(at), uint64(n), nil})
	}
	return err
}

// place waits for room, and counts as copying.
func (t *outgoing) place(c context.Context, b *outbox, n int) (at int, err error) {
	h := t.h
	for {
		h.mu.Lock()
		if err := errors.Join(h.err, t.ended); err != nil {
			h.mu.Unlock()
			return 0, err
		}
		ok := t.eager
		if ok {
			at = t.at
		} else if at, ok = b.room.take(n); ok {
			b.pieces[uint64(at)] = slot{n: n}
		}
		if ok {
			h.copying.Add(1)
			h.mu.Unlock()
			return at, nil
		}
		bell := b.bell
		h.mu.Unlock()
		select {
		case <-bell:
		case <-t.wake:
		case <-c.Done():
			return 0, context.Cause(c)
		}
	}
}

// fill copies, and waits until it is done. What the accelerator found wrong with what it copies is
// told here: on this lane nobody downloads.
func fill(b *outbox, at int, parts []lane.Span, n int) error {
	to := b.mem.Addr() + uintptr(at)
	var own []*device.Buffer
	for _, p := range parts {
		k := min(p.Buf.Len()-int(p.At), n)
		if err := putInto(b.peer, to, p.Buf, int(p.At), k); err != nil {
			return err
		}
		if p.Buf.Device() == device.Device(b.peer.dev) {
			own = append(own, p.Buf)
		}
		to += uintptr(k)
		n -= k
	}
	copied, err := b.peer.mem.Mark(b.mem.Addr())
	if err == nil && len(own) > 0 {
		err = b.peer.dev.Check(own...)
	}
	if err == nil {
		err = copied()
	}
	if err != nil {
		return &wire.Unreadable{Err: err}
	}
	return nil
}

// putInto copies n bytes of a buffer to an address of an accelerator.
func putInto(p accelerator, to uintptr, buf *device.Buffer, off, n int) error {
	if err := wire.Download(nil, buf, 0); err != nil {
		return err // it was released
	}
	if buf.Device() == device.Device(p.dev) {
		return p.mem.Pass(to, buf.Addr()+uintptr(off), n)
	}
	return staged(n, func(at int, mem []byte) error {
		if err := wire.Download(mem, buf, off+at); err != nil {
			return err
		}
		return p.mem.Upload(to+uintptr(at), mem)
	})
}

// staged goes through n bytes in pieces of host memory.
func staged(n int, do func(at int, mem []byte) error) error {
	stage, err := device.Host().Alloc(min(n, wire.StageBytes))
	if err != nil {
		return err
	}
	defer stage.Release() //nolint:errcheck // the one reference from Alloc
	mem, err := stage.Host()
	for at := 0; at < n && err == nil; at += len(mem) {
		mem = mem[:min(len(mem), n-at)]
		err = do(at, mem)
	}
	return err
}

// askedLocked takes the receiver's word that it fetches a transfer, or does not.
func (h *channel) askedLocked(w word) ([]word, error) {
	t := h.out[w.a]
	switch {
	case w.a >= h.nextID:
		return nil, wire.FrameErr("word of lane cuda", fmt.Sprintf("a transfer below %d", h.nextID), "%d", w.a)
	case t == nil && w.what == wordStop:
		return []word{{what: wordOver, a: w.a}}, nil
	case t == nil:
	case w.what == wordStop:
		t.endLocked(errUnwanted)
	default:
		t.gone = true
		lane.Wake(t.wake)
	}
	return nil, nil
}

// backLocked takes back a place that the peer has read.
func (h *channel) backLocked(w word) error {
	if w.a >= uint64(len(h.boxes)) || !h.boxes[w.a].pieces[w.b].told {
		return wire.FrameErr("word of lane cuda", "a piece that was told of", "outbox %d at %d", w.a, w.b)
	}
	h.dropLocked(h.boxes[w.a], w.b)
	return nil
}
