package shm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/wire"
)

// channel lends the receiver the sender's own memory. What has no segment is copied to one first. A
// loan lasts until the receiver has released its buffer and said so, also beyond the link; or until
// the receiver's process is gone. For that the two ends keep a connection, the ledger: segments'
// descriptors go one way and what was given back the other. Who owes nothing any more, its link
// being gone, closes its direction.
type channel struct {
	env    lane.Env
	conn   *net.UnixConn // the ledger
	copies bool          // see Config.LendCopies

	mu       sync.Mutex
	err      error // why the link is gone
	gone     bool  // the peer owes nothing any more, and will borrow nothing
	last     uint64
	loans    map[uint64]*device.Buffer    // lent, with a reference
	told     map[*device.Segment]*telling // the segments that the peer knows
	segments uint32                       // how many it was told
	maps     map[uint32]*mapping          // the peer's segments
	mapped   int64                        // their bytes
	heard    uint32                       // how many it told
	bell     chan struct{}                // closed when heard has changed, or the ledger has ended
	fetched  map[uint64]int               // borrowed, by ticket: how many buffers are not released
	revoked  lane.RefusedTickets          // tickets that are void
	stages   stages                       // where copies lie
	queue    []ledgerEntry                // to be written
	writing  bool                         // somebody does
	finished bool                         // our direction of the ledger is closed
}

func newChannel(env lane.Env, conn *net.UnixConn, copies bool) *channel {
	h := &channel{
		env: env, conn: conn, copies: copies, loans: map[uint64]*device.Buffer{}, told: map[*device.Segment]*telling{},
		maps: map[uint32]*mapping{}, bell: make(chan struct{}), fetched: map[uint64]int{}, revoked: lane.NewRefusedTickets(),
	}
	go h.readEntries()
	return h
}

func (h *channel) Lane() string { return wire.LaneLocal }

func (h *channel) Takes([]wire.Tensor, int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err == nil && !h.gone
}

// lending is one tensor's memory, with a reference.
type lending struct {
	buf *device.Buffer
	off int
}

// lend finds or makes a copy in shared memory of every tensor that is not empty.
func (h *channel) lend(ts []wire.Tensor) (all []lending, bytes int, err error) {
	defer func() {
		if err != nil {
			giveUp(all)
		}
	}()
	need := 0
	for i := range ts {
		b := ts[i].Buf
		if b == nil || b.Len() == 0 {
			continue
		}
		bytes += b.Len()
		if !h.asItLies(b) {
			need += inSpots(b.Len())
		}
		all = append(all, lending{buf: b.Retain()})
	}
	if need == 0 {
		return all, bytes, nil
	}
	stage, mem, err := h.stage(need)
	if err != nil {
		return all, 0, err
	}
	defer stage.Release() //nolint:errcheck // the one of Alloc; each that lies there has its own
	at := 0
	for i := range all {
		l := &all[i]
		if h.asItLies(l.buf) {
			continue
		}
		n := l.buf.Len()
		if err := wire.Download(mem[at:at+n], l.buf, 0); err != nil {
			return all, 0, err
		}
		clear(mem[at+n : at+inSpots(n)]) // the peer sees all of it
		_ = l.buf.Release()              // ours
		*l = lending{stage.Retain(), at}
		at += inSpots(n)
	}
	clear(mem[at:])
	return all, bytes, nil
}

// inSpots is how much room n bytes take.
func inSpots(n int) int { return (n + spotUnit - 1) &^ (spotUnit - 1) }

// asItLies says that a buffer is lent itself, and not a copy.
func (h *channel) asItLies(b *device.Buffer) bool {
	_, ok := b.Segment()
	return ok && !h.copies
}

func giveUp(all []lending) {
	for _, l := range all {
		_ = l.buf.Release() // the reference that we took
	}
}

// transfer is a message's tensors, lent.
type transfer struct {
	h     *channel
	t     ticket
	bytes int
}

func (h *channel) Begin(ts []wire.Tensor) (lane.Transfer, error) {
	all, bytes, err := h.lend(ts)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	t, all, err := h.ticketLocked(all)
	if err != nil {
		giveUp(all)
		return nil, err
	}
	for i, l := range all {
		h.loans[t.first+uint64(i)] = l.buf
	}
	h.last += uint64(len(all))
	return &transfer{h: h, t: t, bytes: bytes}, nil
}

// ticketLocked writes a ticket; with a long table it lends that too.
func (h *channel) ticketLocked(all []lending) (t ticket, _ []lending, err error) {
	if h.err != nil {
		return t, all, h.err
	}
	if h.gone {
		return t, all, fmt.Errorf("transport: the peer's end of the %s lane is gone", wire.LaneLocal)
	}
	t = ticket{first: h.last + 1, loans: len(all)}
	defer func() {
		if err != nil {
			h.untellLocked(all[:len(t.spots)])
		}
	}()
	for _, l := range all {
		n, err := h.tellLocked(l.buf)
		if err != nil {
			return t, all, err
		}
		t.spots = append(t.spots, spot{n, int64(l.off)})
	}
	table := appendSpots(nil, t.spots)
	if len(table) <= tableInOne {
		return t, all, nil
	}
	buf, mem, err := h.stageLocked(len(table))
	if err != nil {
		return t, all, err
	}
	t.size = copy(mem, table)
	clear(mem[t.size:])
	all = append(all, lending{buf: buf})
	n, err := h.tellLocked(buf)
	t.table = spot{segment: n}
	t.loans++
	return t, all, err
}

func (t *transfer) Ticket() []byte { return t.t.append(nil) }

// Deliver does not wait: who lent memory does not write it.
func (t *transfer) Deliver(context.Context) error {
	t.h.env.Count.Sent.Add(uint64(t.bytes))
	return nil
}

// Abandon asks for the loans back: the peer may have got the ticket nevertheless.
func (t *transfer) Abandon() {
	_ = t.h.env.Say((&ticket{first: t.t.first, loans: t.t.loans, size: 1}).append(nil)) // fails only with the link
}

// Control takes a ticket that is void. It comes after the ticket itself, if that comes at all.
func (h *channel) Control(b []byte) error {
	t, err := parseTicket(b)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fetched[t.first] == 0 {
		h.revoked.Add(t.first)
		h.giveBackLocked(t.first, t.loans)
	}
	return nil
}

func (h *channel) Refuse(ticket []byte) {
	if t, err := parseTicket(ticket); err == nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.giveBackLocked(t.first, t.loans)
	}
}

// returned ends loans; those that are not known were ended before.
func (h *channel) returned(first uint64, n uint32) {
	var back []lending
	h.mu.Lock()
	for i := range uint64(n) {
		if b := h.loans[first+i]; b != nil {
			back = append(back, lending{buf: b})
			delete(h.loans, first+i)
		}
	}
	h.untellLocked(back)
	h.mu.Unlock()
	giveUp(back)
}

func (h *channel) Close(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return
	}
	h.err = err
	h.ringLocked()
	for _, m := range h.maps {
		m.dropLocked()
	}
	clear(h.maps)
	for _, k := range h.told {
		k.forget()
	}
	clear(h.told)
	giveUp(h.stages.all)
	h.stages = stages{}
	h.finishLocked()
}

func (h *channel) ringLocked() {
	close(h.bell)
	h.bell = make(chan struct{})
}

// finishLocked closes this end's direction of the ledger when it will not be needed any more.
func (h *channel) finishLocked() {
	if h.err == nil || len(h.fetched) > 0 || h.writing || len(h.queue) > 0 || h.finished {
		return
	}
	h.finished = true
	if h.gone {
		_ = h.conn.Close()
	} else if err := h.conn.CloseWrite(); err != nil && !errors.Is(err, os.ErrClosed) {
		_ = h.conn.Close() // the peer is gone; read sees it
	}
}
