package cudaipc

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/wire"
)

const (
	outboxBytes = 64 << 20
	outboxLeast = 1 << 20 // where the accelerator has no more
	mostBytes   = 4096    // transfers that were stopped while their end is not known
)

// accelerator is an accelerator that both ends use, at this end.
type accelerator struct {
	name [nameSize]byte
	dev  *device.Accelerator
	mem  device.Exporter
}

// nameOf is how an accelerator is called on the wire.
func nameOf(identity string) (name [nameSize]byte) {
	sum := sha256.Sum256([]byte("weft accelerator " + identity))
	copy(name[:], sum[:])
	return name
}

// channel moves tensors within a GPU that both ends use. The sender copies them into its outbox
// there, which the receiver has opened, and tells when a piece lies there; the receiver copies it
// to where it belongs, and tells when that is done. So no tensor's own memory is shared, and
// nothing waits for the host but the words. A transfer begins when it is fetched, or before, where
// the outbox is rather empty: so what nobody fetches cannot keep others from going on.
//
// Outboxes are made when they are first needed; until the peer has opened one, and where it cannot,
// other lanes serve. An outbox is given back when the peer has closed it: for that the ends keep a
// connection, of which each closes its direction when it has nothing of the other's open any more,
// also beyond the link. A process that dies closes it too.
type channel struct {
	env   lane.Env
	peers []accelerator
	conn  net.Conn

	mu      sync.Mutex
	err     error     // why the link is gone
	down    error     // why the lane cannot be used, on a link that lives
	boxes   []*outbox // here, by number
	inboxes map[uint64]*inbox
	nextID  uint64
	out     map[uint64]*outgoing // begun here, and not ended
	in      map[uint64]*incoming // pieces have come, or it is fetched
	stopped map[uint64]bool      // the peer has not said that they are over
	over    lane.RefusedTickets  // were over before they were fetched
	copying sync.WaitGroup       // uses of boxes; added to under mu while err is nil
	left    chan struct{}        // closed when there will be none any more
}

// outbox is memory of an accelerator here, into which pieces are put. The channel's mu guards all
// but peer, mem and its bytes.
type outbox struct {
	peer   accelerator
	number uint64
	bytes  int
	mem    device.Scratch
	state  int // of asked, open, shut
	room   arena
	pieces map[uint64]slot
	eager  int           // bytes of pieces that were not asked for
	bell   chan struct{} // closed when there is more room
}

type slot struct {
	n     int
	eager bool
	told  bool // the peer gives it back
}

const (
	boxAsked = iota
	boxOpen
	boxShut
)

// inbox is the peer's outbox, opened here.
type inbox struct {
	open  []opened // by each device here that is that GPU; at least one
	bytes uint64
	taken uint64 // bytes of pieces that were told of and not given back
}

// opened is where a device has the peer's outbox.
type opened struct {
	accelerator
	at uintptr
}

// by is where the device has it; where that is another GPU, the first that there is.
func (b *inbox) by(d device.Device) opened {
	for _, o := range b.open {
		if d == device.Device(o.dev) {
			return o
		}
	}
	return b.open[0]
}

func newChannel(env lane.Env, conn net.Conn, peers []accelerator) *channel {
	h := &channel{
		env: env, conn: conn, peers: peers, inboxes: map[uint64]*inbox{}, out: map[uint64]*outgoing{}, in: map[uint64]*incoming{},
		stopped: map[uint64]bool{}, over: lane.NewRefusedTickets(), left: make(chan struct{}),
	}
	go h.watch()
	return h
}

func (h *channel) Lane() string { return wire.LaneCUDA }

// usable says why nothing can begin.
func (h *channel) usableLocked() error { return errors.Join(h.err, h.down) }

// shared finds the accelerator on which a tensor lies, if the peer uses it too.
func (h *channel) shared(t *wire.Tensor) (accelerator, bool) {
	if t.Buf != nil && lane.Hauled(t) {
		for _, p := range h.peers {
			if t.Buf.Device() == device.Device(p.dev) {
				return p, true
			}
		}
	}
	return accelerator{}, false
}

// Takes says yes where all accelerators of the tensors have an outbox, and makes those that are
// missing.
func (h *channel) Takes(ts []wire.Tensor, _ int64) bool {
	any, all := false, true
	for i := range ts {
		if p, ok := h.shared(&ts[i]); ok {
			any = true
			all = h.hasBox(p) && all
		}
	}
	return any && all
}

func (h *channel) hasBox(p accelerator) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.usableLocked() != nil {
		return false
	}
	if b := h.boxLocked(p); b != nil {
		return b.state == boxOpen
	}
	b := &outbox{peer: p, number: uint64(len(h.boxes)), pieces: map[uint64]slot{}, bell: make(chan struct{})}
	h.boxes = append(h.boxes, b)
	h.copying.Add(1)
	go h.makeBox(b)
	return false
}

func (h *channel) boxLocked(p accelerator) *outbox {
	for _, b := range h.boxes {
		if b.peer.dev == p.dev {
			return b
		}
	}
	return nil
}

// makeBox sets memory aside and tells the peer.
func (h *channel) makeBox(b *outbox) {
	defer h.copying.Done()
	var handle []byte
	n, err := outboxBytes, error(nil)
	for {
		if b.mem, err = b.peer.dev.Borrow(n); err == nil || !errors.Is(err, device.ErrMemory) || n == outboxLeast {
			break
		}
		n /= 4
	}
	if err == nil {
		if handle, err = b.peer.mem.Export(b.mem.Addr()); err != nil {
			b.mem.Return()
		}
	}
	h.mu.Lock()
	if err != nil {
		b.state = boxShut
		h.failLocked(fmt.Errorf("no memory of %v can be shared: %w", b.peer.dev.ID(), err))
		h.mu.Unlock()
		return
	}
	b.bytes, b.room = n, newArena(n)
	h.mu.Unlock()
	h.say(word{wordOutbox, b.number, uint64(n), 0, append(b.peer.name[:], handle...)})
}

// failLocked has other lanes serve.
func (h *channel) failLocked(err error) {
	if h.down == nil {
		h.down = err
	}
}

// Why says why the lane is not used any more.
func (h *channel) Why() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down == nil {
		return ""
	}
	return h.down.Error()
}

// say tells the peer's channel. It fails only with the link; it may end that, so it is not for who
// holds mu.
func (h *channel) say(words ...word) {
	for _, w := range words {
		if h.env.Say(w.append(make([]byte, 0, wordSize))) != nil {
			return
		}
	}
}

func (h *channel) Control(b []byte) error {
	w, err := parseWord(b)
	if err != nil {
		return err
	}
	var answer []word
	h.mu.Lock()
	if h.err == nil {
		answer, err = h.hearLocked(w)
	}
	h.mu.Unlock()
	h.say(answer...)
	return err
}

func (h *channel) hearLocked(w word) ([]word, error) {
	switch w.what {
	case wordOutbox:
		return nil, h.openLocked(w)
	case wordReady:
		return nil, h.readyLocked(w)
	case wordBack:
		return nil, h.backLocked(w)
	case wordGo, wordStop:
		return h.askedLocked(w)
	case wordPiece:
		return h.pieceLocked(w)
	default:
		return h.overLocked(w.a)
	}
}

// openLocked opens an outbox of the peer's.
func (h *channel) openLocked(w word) error {
	if _, again := h.inboxes[w.a]; again || w.a >= maxBoxes || w.b > offsetMask {
		return wire.FrameErr("word of lane cuda", "a new outbox", "number %d of %d bytes", w.a, w.b)
	}
	var peers []accelerator
	for _, p := range h.peers {
		if bytes.Equal(p.name[:], w.more[:nameSize]) {
			peers = append(peers, p)
		}
	}
	if peers == nil {
		return wire.FrameErr("word of lane cuda", "an outbox on an accelerator that both ends use", "%x", w.more[:nameSize])
	}
	h.inboxes[w.a] = nil
	handle := bytes.Clone(w.more[nameSize:])
	h.copying.Add(1)
	go h.register(peers, w.a, w.b, handle)
	return nil
}

func (h *channel) register(peers []accelerator, number, size uint64, handle []byte) {
	defer h.copying.Done()
	box := &inbox{bytes: size}
	var failure error
	for _, p := range peers {
		at, n, err := p.mem.Import(handle)
		if err == nil && uint64(n) < size {
			err = wire.FrameErr("outbox", fmt.Sprintf("%d bytes", size), "%d", n)
			_ = p.mem.Unimport(at)
		}
		if err != nil {
			failure = fmt.Errorf("the peer's memory of %v cannot be opened: %w", p.dev.ID(), err)
			break
		}
		box.open = append(box.open, opened{p, at})
	}
	word := word{what: wordReady, a: number}
	h.mu.Lock()
	if failure == nil {
		h.inboxes[number] = box
		word.b = 1
	} else {
		h.failLocked(failure)
	}
	h.mu.Unlock()
	if failure != nil {
		box.close()
	}
	if errors.Is(failure, wire.ErrFrame) {
		h.env.Suspect(failure)
	}
	h.say(word)
}

// close gives up what is open, which nobody reads any more.
func (b *inbox) close() {
	for _, o := range b.open {
		_ = o.mem.Unimport(o.at)
	}
}

func (h *channel) readyLocked(w word) error {
	if w.a >= uint64(len(h.boxes)) || h.boxes[w.a].state != boxAsked || h.boxes[w.a].bytes == 0 {
		return wire.FrameErr("word of lane cuda", "an outbox that was told of", "%d", w.a)
	}
	b := h.boxes[w.a]
	if w.b == 0 {
		b.state = boxShut
		h.failLocked(fmt.Errorf("the peer cannot open memory of %v", b.peer.dev.ID()))
		return nil
	}
	b.state = boxOpen
	return nil
}

// watch waits until the peer has nothing of ours open, and gives the outboxes back.
func (h *channel) watch() {
	n, err := h.conn.Read(make([]byte, 1))
	if n > 0 {
		err = wire.FrameErr("connection of lane cuda", "nothing", "a byte")
	}
	h.mu.Lock()
	up := h.err == nil
	if up {
		h.failLocked(fmt.Errorf("the connection that keeps it has ended: %w", err))
	}
	h.mu.Unlock()
	if up {
		h.env.Suspect(fmt.Errorf("the connection of lane %s: %w", wire.LaneCUDA, err))
	}
	<-h.left
	_ = h.conn.Close()
	for _, b := range h.boxes { // nobody else has them now
		if b.bytes > 0 {
			b.mem.Return()
		}
	}
}

func (h *channel) Close(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return
	}
	h.err = err
	for _, t := range h.out {
		t.endLocked(err)
	}
	for _, t := range h.in {
		t.endLocked(err)
	}
	go h.leave()
}

// leave closes what is open of the peer's, when nothing uses it any more, and says so.
func (h *channel) leave() {
	h.copying.Wait()
	for _, b := range h.inboxes { // nobody else has them now
		if b == nil {
			continue
		}
		b.close() // what was read of it has been waited for
	}
	if c, ok := h.conn.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite()
	}
	close(h.left)
}
