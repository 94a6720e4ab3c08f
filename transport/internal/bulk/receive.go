package bulk

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/wire"
)

// scratchBytes is what bytes pass through that do not go to host memory, or nowhere.
const scratchBytes = 64 << 10

// incoming is a transfer at its receiver. When it ends early it stays, without its buffers, until
// its last block has come: blocks of transfers that are not known break the rules.
type incoming struct {
	h     *channel
	id    uint64
	bytes int64
	spans []lane.Span
	quiet chan struct{} // closed when nothing writes to the buffers any more

	// Guarded by h.mu.
	came    []uint64 // bits: the blocks whose heads have come
	heads   uint64   // how many
	filled  uint64   // how many are in the buffers
	most    uint64   // how many will come in all
	readers []*stripe
	ended   bool
	err     error // valid when ended
}

func (h *channel) Fetch(c context.Context, ticket []byte, ts []wire.Tensor, place wire.Place) error {
	tk, err := parseTicket(ticket)
	if err != nil {
		return err
	}
	err = allocate(ts, tk.bytes, place)
	var t *incoming
	if err == nil {
		t, err = h.expect(tk, ts)
	}
	if err != nil {
		h.Refuse(ticket)
		lane.ReleaseAll(ts)
		return err
	}
	select {
	case <-t.quiet:
	case <-c.Done():
		h.mu.Lock()
		t.endLocked(context.Cause(c))
		h.unlock()
		<-t.quiet
	}
	if t.err != nil {
		lane.ReleaseAll(ts)
	}
	return t.err
}

func (h *channel) Refuse(ticket []byte) {
	t, err := parseTicket(ticket)
	if err != nil {
		return // it is of no transfer
	}
	h.mu.Lock()
	defer h.unlock()
	if h.in[t.id] == nil {
		h.sayLocked(wordStop, t.id, 0)
	}
}

// expect asks for a transfer's blocks.
func (h *channel) expect(tk ticket, ts []wire.Tensor) (*incoming, error) {
	blocks := blocksOf(tk.bytes)
	t := &incoming{h: h, id: tk.id, bytes: tk.bytes, most: blocks, came: make([]uint64, (blocks+63)/64), quiet: make(chan struct{})}
	t.spans, _ = lane.SpansOf(ts)
	h.mu.Lock()
	defer h.unlock()
	if err := h.usableLocked(); err != nil {
		return nil, err
	}
	if h.in[t.id] != nil {
		return nil, wire.FrameErr("ticket of lane bulk", "a transfer of its own", "%d once more", t.id)
	}
	h.in[t.id] = t
	h.sayLocked(wordGo, t.id, 0)
	return t, nil
}

// endLocked gives up, because somebody here does not want the tensors any more or the channel has
// ended.
func (t *incoming) endLocked(err error) {
	if t.ended {
		return
	}
	if t.h.owed++; t.h.owed > maxOwed && t.h.err == nil {
		go t.h.breaks(wire.FrameErr("lane bulk", fmt.Sprintf("an end to %d transfers", maxOwed), "none"))
	}
	t.h.sayLocked(wordStop, t.id, 0)
	t.stopLocked(err)
}

// stopLocked ends the transfer, and lets go of its buffers when no reader is in them.
func (t *incoming) stopLocked(err error) {
	t.ended, t.err = true, err
	for _, s := range t.readers {
		_ = s.conn.SetReadDeadline(time.Unix(1, 0)) // never fails on what is open
	}
	t.quietLocked()
}

func (t *incoming) quietLocked() {
	if t.ended && len(t.readers) == 0 && t.spans != nil {
		t.spans = nil
		close(t.quiet)
	}
	if t.ended && t.heads == t.most && t.h.in[t.id] == t {
		delete(t.h.in, t.id)
		t.h.owed--
	}
}

// overLocked hears that the sender gave up, of itself or because it was told to.
func (h *channel) overLocked(w word) error {
	t := h.in[w.id]
	if t == nil || t.most != blocksOf(t.bytes) || w.n < t.heads || w.n > t.most {
		return wire.FrameErr("word of lane bulk", "an over for what is under way", "%d blocks of %d", w.n, w.id)
	}
	t.most = w.n
	if t.ended {
		t.quietLocked()
		return nil
	}
	h.owed++
	t.stopLocked(fmt.Errorf("transport: %w: the peer gave up sending the tensors", wire.ErrReset))
	return nil
}

// read puts what comes on a stripe in its place, until the stripe or the channel ends.
func (h *channel) read(s *stripe) {
	var head [blockHead]byte
	polite := lane.NewCourtesy(h.env.Calls)
	for {
		if _, err := io.ReadFull(awake{s.conn}, head[:]); err != nil {
			h.breaks(err)
			return
		}
		if err := h.readBlock(s, binary.LittleEndian.Uint64(head[:]), binary.LittleEndian.Uint64(head[8:])); err != nil {
			h.breaks(err)
			return
		}
		runtime.Gosched() // a goroutine that never waits keeps others from its processor
		polite.Pause()
	}
}

func (h *channel) readBlock(s *stripe, id, block uint64) error {
	t, spans, err := h.head(s, id, block)
	if err != nil {
		return err
	}
	at, left := int64(block)*blockBytes, blockLen(t.bytes, block)
	h.env.Count.Received.Add(uint64(left))
	var failed error // of a device
	if spans != nil {
		err = lane.Each(spans, at, left, func(buf *device.Buffer, off, n int) error {
			k, inFrom, inTo := t.fill(s, buf, off, n)
			left -= k
			failed = inTo
			return errors.Join(inFrom, inTo)
		})
		h.mu.Lock()
		t.readers = slices.DeleteFunc(t.readers, func(r *stripe) bool { return r == s })
		switch {
		case left == 0 && failed == nil:
			if t.filled++; t.filled == blocksOf(t.bytes) && !t.ended {
				h.owed++ // quietLocked forgets it at once
				t.ended = true
			}
		case failed != nil:
			t.endLocked(fmt.Errorf("transport: a tensor that arrives by lane bulk: %w", failed))
		}
		t.quietLocked()
		h.unlock()
		if err != nil && failed == nil && !errors.Is(err, errStopped) {
			return err
		}
	}
	return s.discard(left)
}

// head checks a block's head. The spans are where its bytes go; nil where nobody wants them.
func (h *channel) head(s *stripe, id, block uint64) (*incoming, []lane.Span, error) {
	h.mu.Lock()
	defer h.unlock()
	t := h.in[id]
	switch {
	case t == nil:
		return nil, nil, wire.FrameErr("block of lane bulk", "a transfer that was asked for", "%d", id)
	case block >= blocksOf(t.bytes):
		return nil, nil, wire.FrameErr("block of lane bulk", fmt.Sprintf("a block below %d", blocksOf(t.bytes)), "%d", block)
	case t.came[block/64]&(1<<(block%64)) != 0 || t.heads == t.most:
		return nil, nil, wire.FrameErr("block of lane bulk", "each block once", "%d of %d again", block, id)
	}
	t.came[block/64] |= 1 << (block % 64)
	t.heads++
	if t.ended {
		t.quietLocked()
		return t, nil, nil
	}
	t.readers = append(t.readers, s)
	return t, t.spans, nil
}

// errStopped: nobody wants the bytes of a block any more.
var errStopped = errors.New("transport: not wanted any more")

// fill reads n bytes into a buffer. It says how many it took off the stripe, and what failed: the
// stripe, or the buffer's device.
func (t *incoming) fill(s *stripe, buf *device.Buffer, off, n int) (k int, from, to error) {
	host, err := buf.Host()
	if err == nil {
		k, from = t.readFull(s, host[off:off+n])
		return k, from, nil
	}
	for k < n {
		piece := s.buffer()[:min(scratchBytes, n-k)]
		j, from := t.readFull(s, piece)
		if k += j; from != nil {
			return k, from, nil
		}
		if err := buf.Device().Upload(buf, off+k-j, piece); err != nil {
			return k, nil, err
		}
	}
	return k, nil, nil
}

// readFull fills b, unless the transfer is stopped: whoever stops it interrupts the read with a
// deadline in the past, which does a TLS connection no harm.
func (t *incoming) readFull(s *stripe, b []byte) (k int, err error) {
	for k < len(b) {
		n, err := s.conn.Read(b[k:])
		k += n
		switch {
		case err == nil || k == len(b):
		case errors.Is(err, os.ErrDeadlineExceeded):
			_ = s.conn.SetReadDeadline(time.Time{})
			t.h.mu.Lock()
			stopped := t.ended
			t.h.unlock()
			if stopped {
				return k, errStopped
			}
		default:
			return k, err
		}
	}
	return k, nil
}

// awake reads from a connection whatever deadlines were meant for.
type awake struct{ conn net.Conn }

func (a awake) Read(b []byte) (int, error) {
	for {
		n, err := a.conn.Read(b)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		_ = a.conn.SetReadDeadline(time.Time{})
	}
}

func (s *stripe) buffer() []byte {
	if s.scratch == nil {
		s.scratch = make([]byte, scratchBytes)
	}
	return s.scratch
}

// discard reads n bytes that nobody wants.
func (s *stripe) discard(n int) error {
	for n > 0 {
		k, err := io.ReadFull(awake{s.conn}, s.buffer()[:min(n, scratchBytes)])
		if n -= k; err != nil {
			return err
		}
	}
	return nil
}

// allocate gives every tensor that is not absent its buffer. They have that many bytes together.
func allocate(ts []wire.Tensor, bytes int64, place wire.Place) error {
	var sum int64
	for i := range ts {
		if t := &ts[i]; t.Dtype != device.Invalid {
			sum += int64(t.Shape.Elems()) * int64(t.Dtype.Size())
		}
	}
	if sum != bytes {
		return wire.FrameErr("ticket of lane bulk", fmt.Sprintf("%d bytes, as the table says", sum), "%d", bytes)
	}
	for i := range ts {
		t := &ts[i]
		if t.Dtype == device.Invalid {
			continue
		}
		buf, err := wire.PlaceTensor(place, t.Device, t.Shape.Elems()*t.Dtype.Size())
		if err != nil {
			return fmt.Errorf("transport: tensor %d, %v of %v for %v: %w", i, t.Dtype, t.Shape, t.Device, err)
		}
		t.Buf = buf
	}
	return nil
}
