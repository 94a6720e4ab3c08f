package cudaipc

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/wire"
)

// incoming is a transfer at its receiver. The channel's mu guards it.
type incoming struct {
	pieces  []word // to be read
	fetched bool
	ended   error
	over    bool // the sender will tell no more
	wake    chan struct{}
}

func (t *incoming) endLocked(err error) {
	if t.ended == nil {
		t.ended = err
	}
	lane.Wake(t.wake)
}

func (h *channel) inLocked(id uint64) *incoming {
	t := h.in[id]
	if t == nil {
		t = &incoming{wake: make(chan struct{}, 1)}
		h.in[id] = t
	}
	return t
}

// pieceLocked takes the news of a piece.
func (h *channel) pieceLocked(w word) ([]word, error) {
	box, at := h.inboxes[w.b>>48], w.b&offsetMask
	if box == nil || w.c == 0 || at > box.bytes || w.c > box.bytes-at || box.taken+spent(w) > box.bytes {
		return nil, wire.FrameErr("word of lane cuda", "a piece within an outbox, beside the others", "%d bytes at %d of %d", w.c, at, w.b>>48)
	}
	box.taken += spent(w)
	if h.stopped[w.a] {
		return h.backsLocked(w), nil
	}
	t := h.inLocked(w.a)
	t.pieces = append(t.pieces, w)
	lane.Wake(t.wake)
	return nil, nil
}

// spent is the room that a piece takes.
func spent(w word) uint64 { return (w.c + arenaUnit - 1) / arenaUnit * arenaUnit }

// backsLocked gives places back.
func (h *channel) backsLocked(pieces ...word) (words []word) {
	for _, w := range pieces {
		h.inboxes[w.b>>48].taken -= spent(w)
		words = append(words, word{what: wordBack, a: w.b >> 48, b: w.b & offsetMask})
	}
	return words
}

// overLocked takes the sender's word that nothing more comes.
func (h *channel) overLocked(id uint64) ([]word, error) {
	t := h.in[id]
	switch {
	case h.stopped[id]:
		delete(h.stopped, id)
	case t == nil:
		h.over.Add(id)
	case t.fetched:
		t.over = true
		t.endLocked(errGivenUp)
	default:
		delete(h.in, id)
		h.over.Add(id)
		return h.backsLocked(t.pieces...), nil
	}
	return nil, nil
}

var errGivenUp = &wire.Error{Op: "receive from", Peer: "the peer", Err: wire.ErrReset, Reason: "it has given the message up"}

func (h *channel) Fetch(c context.Context, ticket []byte, ts []wire.Tensor, place wire.Place) error {
	k, err := parseTicket(ticket)
	if err != nil {
		return err
	}
	var mine, rest, empty []int
	bytes := uint64(0)
	for i := range ts {
		switch x := &ts[i]; {
		case lane.Hauled(x):
			mine = append(mine, i)
			bytes += uint64(x.Shape.Elems() * x.Dtype.Size())
		case x.Dtype == device.Invalid:
		case x.Shape.Elems() == 0:
			empty = append(empty, i)
		default:
			rest = append(rest, i)
		}
	}
	other := h.env.Find(k.lane)
	if bytes != k.bytes || (len(rest) > 0) != (k.lane != 0) || k.lane != 0 && (other == nil || other == lane.Channel(h)) {
		h.Refuse(ticket)
		return wire.FrameErr("ticket", fmt.Sprintf("%d bytes, and a lane for %d more tensors", bytes, len(rest)), "%d bytes, lane %d", k.bytes, k.lane)
	}
	c, cancel := context.WithCancel(c)
	defer cancel()
	left := make([]wire.Tensor, len(rest))
	for i, at := range rest {
		left[i] = ts[at]
	}
	others := wire.Async(len(rest) > 0, func() error {
		err := other.Fetch(c, k.rest, left, place)
		if err != nil {
			cancel()
		}
		return err
	})
	err = h.receive(c, k, ts, mine, place)
	if err != nil {
		cancel()
	}
	err = errors.Join(err, others())
	for i, at := range rest {
		ts[at].Buf = left[i].Buf
	}
	for _, at := range empty {
		if err == nil {
			ts[at].Buf, err = wire.PlaceTensor(place, ts[at].Device, 0)
		}
	}
	if err != nil {
		lane.ReleaseAll(ts)
	}
	return err
}

// receive places the tensors of this lane and fills them.
func (h *channel) receive(c context.Context, k ticket, ts []wire.Tensor, mine []int, place wire.Place) error {
	h.mu.Lock()
	if h.err != nil {
		defer h.mu.Unlock()
		return h.err
	}
	if h.over.Cut(k.id) {
		defer h.mu.Unlock()
		return errGivenUp
	}
	t := h.inLocked(k.id)
	if t.fetched || h.stopped[k.id] {
		defer h.mu.Unlock()
		return wire.FrameErr("ticket", "a new one", "%d again", k.id)
	}
	t.fetched = true
	h.mu.Unlock()
	var spans []lane.Span
	at := int64(0)
	for _, i := range mine {
		n := ts[i].Shape.Elems() * ts[i].Dtype.Size()
		buf, err := wire.PlaceTensor(place, ts[i].Device, n)
		if err != nil {
			h.leaveOff(k.id, t, false)
			return fmt.Errorf("transport: tensor %d, %v of %v for %v: %w", i, ts[i].Dtype, ts[i].Shape, ts[i].Device, err)
		}
		ts[i].Buf = buf
		spans = append(spans, lane.Span{At: at, Buf: buf})
		at += int64(n)
	}
	if !k.eager {
		h.say(word{what: wordGo, a: k.id})
	}
	err := h.pull(c, t, spans, at)
	h.leaveOff(k.id, t, err == nil)
	return err
}

// pull reads pieces until all bytes have been.
func (h *channel) pull(c context.Context, t *incoming, spans []lane.Span, bytes int64) error {
	for at := int64(0); at < bytes; {
		h.mu.Lock()
		if len(t.pieces) == 0 || h.err != nil {
			err := errors.Join(h.err, t.ended)
			h.mu.Unlock()
			if err != nil {
				return err
			}
			select {
			case <-t.wake:
				continue
			case <-c.Done():
				return context.Cause(c)
			}
		}
		w := t.pieces[0]
		t.pieces = t.pieces[1:]
		box := h.inboxes[w.b>>48]
		h.copying.Add(1)
		h.mu.Unlock()
		var by []opened
		var err error = wire.FrameErr("piece", fmt.Sprintf("at most %d bytes", bytes-at), "%d", w.c)
		if int64(w.c) <= bytes-at {
			by, err = h.requestCopies(box, w, spans, at)
		}
		h.release(by, w)
		if err != nil {
			return err
		}
		h.env.Count.Received.Add(w.c)
		at += int64(w.c)
	}
	return nil
}

// requestCopies asks for the copies of a piece, and says which devices make them.
func (h *channel) requestCopies(box *inbox, w word, spans []lane.Span, at int64) (by []opened, err error) {
	off := uintptr(w.b & offsetMask)
	err = lane.Each(spans, at, int(w.c), func(buf *device.Buffer, to, n int) error {
		o := box.by(buf.Device())
		if !slices.Contains(by, o) {
			by = append(by, o)
		}
		from := o.at + off
		off += uintptr(n)
		return takeFrom(o.accelerator, from, buf, to, n)
	})
	return by, err
}

// takeFrom copies n bytes at an address of an accelerator to a buffer.
func takeFrom(p accelerator, from uintptr, buf *device.Buffer, off, n int) error {
	if buf.Device() == device.Device(p.dev) {
		return p.mem.Pass(buf.Addr()+uintptr(off), from, n)
	}
	return staged(n, func(at int, mem []byte) error {
		if err := p.mem.Download(mem, from+uintptr(at)); err != nil {
			return err
		}
		return buf.Device().Upload(buf, off+at, mem)
	})
}

// release gives a piece back when the copies that were asked for are done, and ends the copying.
func (h *channel) release(by []opened, w word) {
	var waits []func() error
	for _, o := range by {
		if wait, err := o.mem.Mark(o.at); err == nil { // where the accelerator is lost nothing reads any more
			waits = append(waits, wait)
		}
	}
	go func() {
		defer h.copying.Done()
		for _, wait := range waits {
			_ = wait()
		}
		h.mu.Lock()
		back := h.backsLocked(w)
		h.mu.Unlock()
		h.say(back...)
	}()
}

// leaveOff ends a transfer here: what has not been read is given back, and, where it is not whole,
// no more is wanted.
func (h *channel) leaveOff(id uint64, t *incoming, whole bool) {
	h.mu.Lock()
	delete(h.in, id)
	words := h.backsLocked(t.pieces...)
	t.pieces = nil
	if !whole && !t.over && h.err == nil {
		h.stopped[id] = true
		words = append(words, word{what: wordStop, a: id})
	}
	crowd := len(h.stopped) > mostBytes
	h.mu.Unlock()
	h.say(words...)
	if crowd {
		h.env.Suspect(wire.FrameErr("words of lane cuda", "the end of what is not wanted", "none for %d transfers", mostBytes))
	}
}

func (h *channel) Refuse(ticket []byte) {
	k, err := parseTicket(ticket)
	if err != nil {
		return
	}
	if other := h.env.Find(k.lane); other != nil && other != lane.Channel(h) {
		other.Refuse(k.rest)
	}
	h.mu.Lock()
	if h.err != nil || h.over.Cut(k.id) || h.stopped[k.id] || h.in[k.id] != nil && h.in[k.id].fetched {
		h.mu.Unlock()
		return
	}
	t := h.inLocked(k.id)
	t.fetched = true
	h.mu.Unlock()
	h.leaveOff(k.id, t, false)
}
