package bulk

import (
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/wire"
)

// leastBytes is from how many bytes a message's tensors go by stripes: below, the round trip that a
// transfer begins with, and its share of the frames' connection, cost more than they save.
const leastBytes = 256 << 10

// maxOwed is how many transfers may be ended here while the peer has not said how many of their
// blocks are to come.
const maxOwed = 4096

// channel moves tensors over stripes: connections that carry blocks of tensors and nothing else, so
// that calls never wait behind them. Each stripe has a writer, which takes the next block of any
// transfer, and a reader, which puts it where its transfer's tensors lie. What channels say to each
// other goes with the link's frames.
type channel struct {
	env     lane.Env
	stripes []*stripe

	mu   sync.Mutex
	more sync.Cond // ready has grown, or the channel has ended
	err  error     // why nothing moves any more
	// broken is the first failure of a stripe. Nothing begins after it; what is under way learns
	// from close why the link ended.
	broken error
	nextID uint64
	out    map[uint64]*outgoing // begun here, and not ended
	ready  []*outgoing          // those that have a go and blocks to take, in turn
	in     map[uint64]*incoming // fetched here, while blocks may come
	owed   int                  // how many of in have ended
	words  []word               // to be said
}

// stripe is one connection. Only its writer writes, and only its reader reads.
type stripe struct {
	conn    net.Conn
	under   *wide  // below TLS; nil in tests without it
	scratch []byte // the reader's; made when it is needed
}

func newChannel(env lane.Env, conns []net.Conn) *channel {
	h := &channel{env: env, out: map[uint64]*outgoing{}, in: map[uint64]*incoming{}}
	h.more.L = &h.mu
	for _, conn := range conns {
		s := &stripe{conn: conn}
		if t, ok := conn.(*tls.Conn); ok {
			if s.under, ok = t.NetConn().(*wide); ok {
				s.under.collect()
			}
		}
		h.stripes = append(h.stripes, s)
		go h.sendBlocks(s)
		go h.read(s)
	}
	return h
}

func (h *channel) Lane() string { return wire.LaneBulk }

func (h *channel) Takes(_ []wire.Tensor, bytes int64) bool { return bytes >= leastBytes }

// sayLocked has unlock tell the peer's channel.
func (h *channel) sayLocked(what byte, id, n uint64) {
	h.words = append(h.words, word{what, id, n})
}

// unlock releases mu and says what is to be said. That may end the link, and with it this channel:
// it is not for who holds mu.
func (h *channel) unlock() {
	words := h.words
	h.words = nil
	if h.err != nil {
		words = nil
	}
	h.mu.Unlock()
	for _, w := range words {
		if h.env.Say(w.append(make([]byte, 0, wordSize))) != nil {
			return // the link has ended
		}
	}
}

func (h *channel) Control(b []byte) error {
	w, err := parseWord(b)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.unlock()
	if w.what == wordOver {
		return h.overLocked(w)
	}
	t := h.out[w.id]
	switch {
	case w.id >= h.nextID:
		return wire.FrameErr("word of lane bulk", fmt.Sprintf("a transfer below %d", h.nextID), "%d", w.id)
	case t == nil && w.what == wordGo:
		h.sayLocked(wordOver, w.id, 0) // given up before
	case t == nil: // all its blocks are on their way, or it was given up
	case w.what == wordStop:
		t.endLocked(fmt.Errorf("transport: %w: the peer does not want the tensors", wire.ErrReset))
	case t.gone:
		return wire.FrameErr("word of lane bulk", "one go for each transfer", "two for %d", w.id)
	default:
		t.gone = true
		t.readyLocked()
	}
	return nil
}

// breaks is how a writer or a reader ends: it is the peer that was lost, or that breaks the rules.
func (h *channel) breaks(err error) {
	h.mu.Lock()
	if h.err != nil || h.broken != nil {
		h.unlock()
		return
	}
	h.broken = fmt.Errorf("transport: a connection of lane bulk broke: %w", err)
	h.unlock()
	time.AfterFunc(lane.VerdictTimeout, func() { h.Close(fmt.Errorf("%w (%w)", wire.ErrReset, h.broken)) })
	h.env.Suspect(h.broken)
}

func (h *channel) Close(err error) {
	h.mu.Lock()
	defer h.unlock()
	if h.err != nil {
		return
	}
	h.err = err
	for _, s := range h.stripes {
		closeStripe(s.conn)
	}
	for _, t := range h.out {
		t.endLocked(err)
	}
	for _, t := range h.in {
		t.endLocked(err)
	}
	h.more.Broadcast()
}

// usableLocked says why nothing can begin.
func (h *channel) usableLocked() error {
	if h.err != nil {
		return h.err
	}
	return h.broken
}

// blockLen is the length of a block of a transfer.
func blockLen(bytes int64, block uint64) int {
	return int(min(blockBytes, bytes-int64(block)*blockBytes))
}

// closeStripe closes a connection without a word: a word of TLS would wait for room on the
// connection.
func closeStripe(conn net.Conn) {
	if under, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = under.NetConn()
	}
	_ = conn.Close()
}
