package shm

import (
	"context"
	"fmt"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/transport/internal/wire"
)

// Fetch borrows the tensors that are for the host, where they lie; the others it copies to their
// devices.
func (h *channel) Fetch(c context.Context, ticket []byte, ts []wire.Tensor, place wire.Place) error {
	t, err := parseTicket(ticket)
	if err != nil {
		return err
	}
	if err := h.openTicket(t); err != nil {
		return err
	}
	var live []*wire.Tensor
	for i := range ts {
		if ts[i].Dtype != device.Invalid && ts[i].Shape.Elems() > 0 {
			live = append(live, &ts[i])
		}
	}
	if err = h.readTable(c, &t); err == nil && len(t.spots) != len(live) {
		err = wire.FrameErr("ticket", fmt.Sprintf("spots of %d tensors", len(live)), "%d", len(t.spots))
	}
	if err == nil {
		err = h.borrow(c, t, live, place)
	} else {
		h.release(t.first, t.first, t.loans, nil)
	}
	if err != nil {
		return err
	}
	for i := range ts {
		if ts[i].Dtype != device.Invalid && ts[i].Buf == nil { // an empty one
			if ts[i].Buf, err = wire.PlaceTensor(place, ts[i].Device, 0); err != nil {
				m := wire.Message{Tensors: ts}
				m.Release()
				for i := range ts {
					ts[i].Buf = nil
				}
				return err
			}
		}
	}
	return nil
}

// openTicket notes that a ticket is used.
func (h *channel) openTicket(t ticket) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.err != nil:
		return h.err
	case h.revoked.Cut(t.first):
		return &wire.Error{Op: "receive from", Peer: "the peer", Err: wire.ErrReset, Reason: "it has given the message up"}
	case h.fetched[t.first] != 0:
		return wire.FrameErr("ticket", "a new one", "%d again", t.first)
	}
	h.fetched[t.first] = t.loans
	return nil
}

// readTable reads the table of spots where it does not stand in the ticket.
func (h *channel) readTable(c context.Context, t *ticket) error {
	if t.size == 0 {
		return nil
	}
	m, mem, err := h.view(c, t.table, t.size)
	if err != nil {
		return err
	}
	table := append([]byte(nil), mem...) // the peer could change it
	t.spots, err = parseSpots(table, t.loans-1)
	if err != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		m.dropLocked()
		return err
	}
	t.loans--
	h.release(t.first, t.first+uint64(t.loans), 1, m)
	return nil
}

// borrow fills in the buffers. On failure it has given everything back.
func (h *channel) borrow(c context.Context, t ticket, live []*wire.Tensor, place wire.Place) error {
	for i, x := range live {
		loan := t.first + uint64(i)
		n := x.Shape.Elems() * x.Dtype.Size()
		m, mem, err := h.view(c, t.spots[i], n)
		if err == nil && x.Device == (device.ID{}) {
			x.Buf = device.Foreign(mem, m, func() { h.release(t.first, loan, 1, m) })
		} else if err == nil {
			x.Buf, err = wire.PlaceTensor(place, x.Device, n)
			if err == nil {
				err = x.Buf.Device().Upload(x.Buf, 0, mem)
			}
			h.release(t.first, loan, 1, m)
			i++
		}
		if err != nil {
			i = min(i, len(live))
			h.release(t.first, t.first+uint64(i), len(live)-i, nil)
			for _, x := range live {
				if x.Buf != nil {
					_ = x.Buf.Release() // ours alone
					x.Buf = nil
				}
			}
			return err
		}
		h.env.Count.Received.Add(uint64(n))
	}
	return nil
}

// view gives n bytes at a spot, when the peer has told of the segment, with a reference to the
// mapping.
func (h *channel) view(c context.Context, s spot, n int) (*mapping, []byte, error) {
	for {
		h.mu.Lock()
		m, heard, bell, err, gone := h.maps[s.segment], h.heard, h.bell, h.err, h.gone
		if m != nil && err == nil {
			defer h.mu.Unlock()
			if s.off > int64(len(m.mem)) || int64(n) > int64(len(m.mem))-s.off {
				return nil, nil, wire.FrameErr("ticket", fmt.Sprintf("a place in a segment of %d bytes", len(m.mem)), "%d bytes at %d", n, s.off)
			}
			m.refs++
			return m, m.mem[s.off : s.off+int64(n) : s.off+int64(n)], nil
		}
		h.mu.Unlock()
		switch {
		case err != nil:
			return nil, nil, err
		case s.segment <= heard || gone:
			return nil, nil, wire.FrameErr("ticket", "a segment of the peer's", "number %d", s.segment)
		}
		select {
		case <-bell:
		case <-c.Done():
			return nil, nil, context.Cause(c)
		}
	}
}

// release gives back n loans of a ticket, and a reference to the mapping in which they lay.
func (h *channel) release(ticket, first uint64, n int, m *mapping) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m != nil {
		m.dropLocked()
	}
	if n == 0 {
		return
	}
	if h.fetched[ticket] -= n; h.fetched[ticket] <= 0 {
		delete(h.fetched, ticket)
	}
	h.giveBackLocked(first, n)
}

// giveBackLocked tells the peer that loans have ended.
func (h *channel) giveBackLocked(first uint64, n int) {
	h.enterLocked(ledgerEntry{kind: ledgerBack, number: uint32(n), value: first})
}
