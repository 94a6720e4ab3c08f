package bulk

import (
	"context"
	"encoding/binary"
	"errors"
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
	done  chan struct{} // closed when the tensors are not needed any more

	// Guarded by h.mu.
	gone       bool // the receiver has its buffers
	delivering bool
	next       uint64 // the block to take
	sent       uint64 // blocks that go, or went, on a stripe
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
		<-t.done // a block that is being copied is soon copied
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
// any more.
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
	if !t.ended || t.busy > 0 {
		return
	}
	if t.err != nil && t.gone && t.sent < blocksOf(t.bytes) {
		t.h.sayLocked(wordOver, t.id, t.sent)
	}
	t.spans = nil
	close(t.done)
}

// nextBlock waits for a block to send. false: the channel has ended.
func (h *channel) nextBlock() (t *outgoing, block uint64, ok bool) {
	h.mu.Lock()
	defer h.unlock()
	for len(h.ready) == 0 {
		if h.usableLocked() != nil {
			return nil, 0, false
		}
		h.more.Wait()
	}
	t, h.ready = h.ready[0], h.ready[1:]
	block = t.next
	t.next++
	t.busy++
	if t.next < blocksOf(t.bytes) {
		h.ready = append(h.ready, t) // transfers take turns
	}
	return t, block, true
}

// taken notes that a block was copied off the tensors, or that it could not be.
func (t *outgoing) taken(err error) {
	t.h.mu.Lock()
	defer t.h.unlock()
	t.busy--
	if err == nil {
		t.sent++
	}
	switch {
	case t.ended:
		t.quietLocked()
	case err != nil || t.sent == blocksOf(t.bytes):
		t.endLocked(err)
	}
}

// sendBlocks sends blocks on a stripe. A block is copied first, so that a tensor is free as soon as
// its last one has been, however long the network takes, and whoever gives up need not wait; next
// to the encryption the copy costs little.
func (h *channel) sendBlocks(s *stripe) {
	var stage []byte
	polite := courtesy{frames: h.env.Frames}
	for {
		t, block, ok := h.nextBlock()
		if !ok {
			return
		}
		if stage == nil {
			stage = make([]byte, blockHead+blockBytes)
		}
		n := blockLen(t.bytes, block)
		binary.LittleEndian.PutUint64(stage, t.id)
		binary.LittleEndian.PutUint64(stage[8:], block)
		to := stage[blockHead : blockHead+n]
		err := lane.Each(t.spans, int64(block)*blockBytes, n, func(buf *device.Buffer, off, n int) error {
			err := wire.Download(to[:n], buf, off)
			to = to[n:]
			return err
		})
		t.taken(err)
		if err != nil {
			continue
		}
		if _, err := s.conn.Write(stage[:blockHead+n]); err != nil {
			h.breaks(err)
			return
		}
		h.env.Count.Sent.Add(uint64(n))
		polite.pause()
	}
}
