package bulk

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/wire"
)

// outgoing is a transfer at its sender.
type outgoing struct {
	h     *channel
	id    uint64
	bytes int64
	spans []lane.Span
	done  chan struct{} // closed when the tensors are not needed any more, but for blocks that hold them

	// Guarded by h.mu.
	gone       bool // the receiver has its buffers
	delivering bool
	next       uint64 // the block to take
	sent       uint64 // blocks that go, or went, on a stripe
	free       uint64 // of these, blocks whose tensors are not needed any more
	busy       int    // blocks that are being copied off the tensors
	ended      bool
	err        error // valid when ended
}

var errNothing = errors.New("transport: lane bulk has nothing to move")

func (h *channel) Begin(ts []wire.Tensor) (lane.Transfer, error) {
	spans, bytes := lane.SpansOf(ts)
	if bytes == 0 {
		return nil, errNothing
	}
	h.mu.Lock()
	defer h.unlock()
	if err := h.usableLocked(); err != nil {
		return nil, err
	}
	t := &outgoing{h: h, id: h.nextID, bytes: bytes, spans: spans, done: make(chan struct{})}
	h.nextID++
	h.out[t.id] = t
	return t, nil
}

func (t *outgoing) Ticket() []byte {
	return ticket{t.id, t.bytes}.append(make([]byte, 0, ticketSize))
}

func (t *outgoing) Deliver(c context.Context) error {
	t.h.mu.Lock()
	t.delivering = true
	t.readyLocked()
	t.h.unlock()
	select {
	case <-t.done:
	case <-c.Done():
		t.end(context.Cause(c))
		<-t.done // a block that is being copied is soon copied; one that is being written holds what it needs
	}
	return t.err
}

func (t *outgoing) Abandon() { t.end(context.Canceled) }

func (t *outgoing) end(err error) {
	t.h.mu.Lock()
	defer t.h.unlock()
	t.endLocked(err)
}

// readyLocked lets the writers have the transfer when both ends are there for it.
func (t *outgoing) readyLocked() {
	if t.gone && t.delivering && !t.ended {
		t.h.ready = append(t.h.ready, t)
		t.h.more.Broadcast()
	}
}

// endLocked ends the transfer, with err where blocks are missing. It is heard of when nobody copies
// any more; who writes has references of its own.
func (t *outgoing) endLocked(err error) {
	if t.ended {
		return
	}
	t.ended, t.err = true, err
	delete(t.h.out, t.id)
	if i := slices.Index(t.h.ready, t); i >= 0 {
		t.h.ready = slices.Delete(t.h.ready, i, i+1)
	}
	t.quietLocked()
}

func (t *outgoing) quietLocked() {
	if !t.ended || t.busy > 0 || t.spans == nil {
		return
	}
	if t.err != nil && t.gone && t.sent < blocksOf(t.bytes) {
		t.h.sayLocked(wordOver, t.id, t.sent)
	}
	t.spans = nil
	close(t.done)
}

// block is one that a stripe's writer has taken.
type block struct {
	t      *outgoing
	number uint64
	held   []held // where its bytes lie, if all of them are in the host's memory
	copied []byte // a copy of its bytes, if not
}

// held is a part of a tensor that is about to be written, with a reference: the write may be stuck
// for as long as the network is, and whoever gives up does not wait for it.
type held struct {
	buf *device.Buffer
	mem []byte
}

// awaitTurn waits for a block to send. Before it waits, what w still has of the last ones goes.
func (b *block) awaitTurn(h *channel, w *writer) error {
	h.mu.Lock()
	defer h.unlock()
	for len(h.ready) == 0 {
		if err := h.usableLocked(); err != nil {
			return err
		}
		if !w.unsent {
			h.more.Wait()
			continue
		}
		h.mu.Unlock()
		err := w.flush()
		if h.mu.Lock(); err != nil {
			return err
		}
	}
	t := h.ready[0]
	h.ready = h.ready[1:]
	b.t, b.number = t, t.next
	t.next++
	if b.holdLocked() {
		t.sent++
	} else {
		t.busy++
	}
	if t.next < blocksOf(t.bytes) {
		h.ready = append(h.ready, t) // transfers take turns
	}
	return nil
}

// each calls f with the parts of tensors that the block's bytes lie in.
func (b *block) each(f func(buf *device.Buffer, off, n int) error) error {
	return lane.Each(b.t.spans, int64(b.number)*blockBytes, blockLen(b.t.bytes, b.number), f)
}

// holdLocked takes a reference to each tensor of the block, if all are in the host's memory.
func (b *block) holdLocked() bool {
	err := b.each(func(buf *device.Buffer, off, n int) error {
		mem, err := buf.Host()
		if err == nil {
			b.held = append(b.held, held{buf.Retain(), mem[off : off+n]})
		}
		return err
	})
	if err != nil {
		b.letGo()
	}
	return err == nil
}

func (b *block) letGo() {
	for _, x := range b.held {
		_ = x.buf.Release() // the reference of holdLocked
	}
	clear(b.held)
	b.held = b.held[:0]
}

// copy takes a copy of a block that is not all in the host's memory.
func (b *block) copy() error {
	if b.copied == nil {
		b.copied = make([]byte, blockBytes)
	}
	at := 0
	err := b.each(func(buf *device.Buffer, off, n int) error {
		at += n
		return wire.Download(b.copied[at-n:at], buf, off)
	})
	b.t.h.mu.Lock()
	defer b.t.h.unlock()
	b.t.busy--
	if err == nil {
		b.t.sent++
	}
	b.t.freeLocked(err)
	return err
}

// emit sends the block, but for bytes that do not fill a TLS record and stay with w. It lets go of
// its tensors.
func (b *block) emit(w *writer) error {
	w.unsent = true
	head := binary.LittleEndian.AppendUint64(w.AvailableBuffer(), b.t.id)
	_, err := w.Write(binary.LittleEndian.AppendUint64(head, b.number))
	if len(b.held) == 0 {
		return errors.Join(err, writeRecords(w, b.copied[:blockLen(b.t.bytes, b.number)]))
	}
	for _, x := range b.held {
		err = errors.Join(err, writeRecords(w, x.mem))
	}
	b.letGo()
	if err == nil {
		b.t.h.mu.Lock()
		defer b.t.h.unlock()
		b.t.freeLocked(nil)
	}
	return err
}

// writer writes on a stripe: parts of records wait here for the rest, and records below TLS for
// more of them.
type writer struct {
	*bufio.Writer
	under  *wide
	unsent bool
}

// flush sends all that waits.
func (w *writer) flush() error {
	w.unsent = false
	if err := w.Flush(); err != nil || w.under == nil {
		return err
	}
	return w.under.flush()
}

// writeRecords writes whole TLS records from where they lie, and leaves the rest with w.
func writeRecords(w *writer, b []byte) error {
	whole := max(0, len(b)-(w.Buffered()+len(b))%recordBytes)
	_, err := w.Write(b[:whole])
	_, err2 := w.Write(b[whole:])
	return errors.Join(err, err2)
}

// freeLocked notes that the tensors of a block are not needed any more, or that they cannot be
// read.
func (t *outgoing) freeLocked(err error) {
	if err == nil {
		t.free++
	}
	switch {
	case t.ended:
		t.quietLocked()
	case err != nil || t.free == blocksOf(t.bytes):
		t.endLocked(err)
	}
}

// recordBytes is how many bytes a TLS record carries at most.
const recordBytes = 16 << 10

// sendBlocks sends blocks on a stripe, from where the tensors lie: what is smaller than a TLS
// record, as heads are, shares one with what comes next. Of other devices' tensors a copy is sent.
func (h *channel) sendBlocks(s *stripe) {
	var b block
	w := &writer{Writer: bufio.NewWriterSize(s.conn, recordBytes), under: s.under}
	polite := lane.NewCourtesy(h.env.Calls)
	for {
		err := b.awaitTurn(h, w)
		if err == nil && len(b.held) == 0 && b.copy() != nil {
			continue
		}
		if err == nil {
			err = b.emit(w)
		}
		if err != nil {
			h.breaks(err) // which does nothing where the channel has ended
			return
		}
		h.env.Count.Sent.Add(uint64(blockLen(b.t.bytes, b.number)))
		runtime.Gosched() // a goroutine that never waits keeps others from its processor
		polite.Pause()
	}
}
