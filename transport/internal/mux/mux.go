package mux

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/wire"
)

// Config is what both ends of a session have agreed on, and what is this end's alone.
type Config struct {
	Codec   *wire.Codec
	Pieces  *Pieces
	Dialler bool
	Peer    string // for errors
	Accepts uint64 // how many streams the peer may have open at a time
	Opens   uint64 // how many this end may have open at first; the peer allows more as it finishes them
	Inline  int64  // messages whose tensors have at most that many bytes travel in frames
	Conduit lane.Conduit
	Count   *lane.Traffic  // of the conduit
	Calls   *atomic.Uint64 // messages of streams that carry no large tensors; nil: nobody wants to know
	// Explain says what a failed read or write on the conduit means for the link.
	Explain func(op string, err error) error
	// Gone is called once, when the session has ended.
	Gone func(err error)
	RTT  func() time.Duration // of the path, for suspicions; nil means that it is short
}

// Session carries a link's streams over one conduit, and asks channels to carry their large
// tensors. One goroutine reads; it never waits for who uses the streams. Locks: a stream's mu
// before out.mu before mu.
type Session struct {
	Config
	channels []lane.Channel // in order of preference; set before start
	passed   atomic.Uint64  // messages that LaneState.Passed counts
	counts   []*lane.Traffic
	out      outbox
	ctx      context.Context // ends with the link; its cause is the link's error
	cancel   context.CancelCauseFunc
	budget   budget // bytes of tensors that are being received
	number   uint64 // of the next stream of this end; guarded by out.mu

	arrival chan struct{} // a token: arrived may have something
	servers servers
	opening chan struct{} // a token: a stream may be opened
	pongs   atomic.Uint64 // the last ping that was answered
	pinged  atomic.Uint64 // the last ping that was sent
	queued  atomic.Int64  // bytes of pieces that live

	mu       sync.Mutex
	streams  map[uint64]*stream // by number on the wire
	arrived  []*stream          // not accepted yet
	openable uint64             // streams that this end may still open
	allowed  uint64             // how many the peer said that this end may open in all
	seen     uint64             // streams that the peer has opened
	granted  uint64             // streams that it may have opened in all
	ended    uint64             // its streams that are finished here, and were not granted anew
	over     bool
	closing  error // Close was called
}

// New makes a session. It does nothing before start.
func New(cfg Config) *Session {
	l := &Session{
		Config: cfg, streams: map[uint64]*stream{},
		arrival: make(chan struct{}, 1), opening: make(chan struct{}, 1),
		openable: cfg.Opens, allowed: cfg.Opens, granted: cfg.Accepts,
	}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	l.budget.total = cfg.Codec.Lim.MaxPeerBytes
	l.out = outbox{conduit: cfg.Conduit, count: cfg.Count, fail: l.unwritten}
	return l
}

// AddChannel adds a channel, of the least preference so far.
func (l *Session) AddChannel(make func(lane.Env) lane.Channel) {
	count := &lane.Traffic{}
	var h lane.Channel
	h = make(lane.Env{
		Say:     func(b []byte) error { return l.out.control(chunk{kind: chunkWord, lane: wire.LaneCode(h.Lane())}, b) },
		Suspect: l.suspect,
		Count:   count,
		Calls:   l.Calls,
		Begin:   l.beginBut,
		Find:    l.Channel,
	})
	l.channels, l.counts = append(l.channels, h), append(l.counts, count)
}

// Account adds what has travelled by a lane to its state, and why it is not used any more.
func (l *Session) Account(state *wire.LaneState) {
	if state.Name == wire.LaneCUDA {
		state.Passed = l.passed.Load()
	}
	for k, h := range l.channels {
		if h.Lane() == state.Name {
			state.Sent += l.counts[k].Sent.Load()
			state.Received += l.counts[k].Received.Load()
			if d, ok := h.(lane.Failing); ok {
				state.Why = d.Why()
			}
		}
	}
}

// unwritten is told of a failed write. Where the peer has closed the conduit, it is the reader who
// finds out why: there may be its last words.
func (l *Session) unwritten(err error) {
	if !isHangUp(err) {
		l.End(l.Explain("write to", err))
		return
	}
	time.AfterFunc(lastWords, func() { l.End(l.Explain("write to", err)) }) // does nothing to a link that has ended
}

// lastWords is how long the reader may take to find out why a peer has hung up.
const lastWords = 2 * time.Second

// Start begins to read. All channels have been added.
func (l *Session) Start() { go l.readLoop() }

// Channel finds the channel of a lane, by its code; nil where there is none.
func (l *Session) Channel(code byte) lane.Channel {
	for _, h := range l.channels {
		if wire.LaneCode(h.Lane()) == code {
			return h
		}
	}
	return nil
}

// Open implements [wire.Link].
func (l *Session) Open(c context.Context) (wire.Stream, error) {
	for {
		s, err := l.tryOpen(c)
		if s != nil || err != nil {
			return s, err
		}
		select {
		case <-l.opening:
		case <-c.Done():
		case <-l.ctx.Done():
		}
	}
}

// tryOpen gives nothing where the peer has enough streams.
func (l *Session) tryOpen(c context.Context) (wire.Stream, error) {
	if err := l.Err(); err != nil {
		return nil, err
	}
	if err := c.Err(); err != nil {
		return nil, &wire.Error{Op: "open a stream to", Peer: l.Peer, Err: err}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.openable == 0 {
		return nil, nil //nolint:nilnil // as said above
	}
	if l.openable--; l.openable > 0 {
		lane.Wake(l.opening)
	}
	return newStream(l), nil
}

// unopened takes back a stream of which the peer never heard.
func (l *Session) unopened() {
	l.mu.Lock()
	l.openable++
	l.mu.Unlock()
	lane.Wake(l.opening)
}

// Accept implements [wire.Link].
func (l *Session) Accept(c context.Context) (wire.Stream, error) {
	for {
		if err := l.Err(); err != nil {
			return nil, err
		}
		if s := l.tryAccept(); s != nil {
			return s, nil
		}
		select {
		case <-l.arrival:
		case <-l.ctx.Done():
		case <-c.Done():
			return nil, &wire.Error{Op: "accept a stream from", Peer: l.Peer, Err: c.Err()}
		}
	}
}

// servers is who is given the streams that the peer opens, in the place of Accept.
type servers struct {
	mu sync.Mutex
	fn func(s wire.Stream, kind uint8, whole bool) // nil: nobody
}

// Serve implements [wire.Link].
func (l *Session) Serve(c context.Context, fn func(s wire.Stream, kind uint8, whole bool)) {
	l.servers.set(fn)
	l.handOver() // what arrived before
	select {
	case <-c.Done():
	case <-l.ctx.Done():
	}
	l.servers.set(nil) // when the reader has left fn
}

func (x *servers) set(fn func(s wire.Stream, kind uint8, whole bool)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.fn = fn
}

// handOver gives the streams that have arrived to who serves them, or wakes who accepts them.
func (l *Session) handOver() {
	l.servers.mu.Lock()
	defer l.servers.mu.Unlock()
	if l.servers.fn == nil {
		lane.Wake(l.arrival)
		return
	}
	for s := l.tryAccept(); s != nil; s = l.tryAccept() {
		kind, whole := s.peek()
		l.servers.fn(s, kind, whole)
	}
}

func (l *Session) tryAccept() *stream {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.arrived) == 0 {
		return nil
	}
	s := l.arrived[0]
	l.arrived[0] = nil
	if l.arrived = l.arrived[1:]; len(l.arrived) > 0 {
		lane.Wake(l.arrival)
	}
	return s
}

// RemoteAddr implements [wire.Link].
func (l *Session) RemoteAddr() string { return l.Peer }

// Done implements [wire.Link].
func (l *Session) Done() <-chan struct{} { return l.ctx.Done() }

// Err implements [wire.Link].
func (l *Session) Err() error {
	if l.ctx.Err() == nil {
		return nil
	}
	return context.Cause(l.ctx)
}

// End ends the session, once.
func (l *Session) End(err error) {
	l.mu.Lock()
	if l.over {
		l.mu.Unlock()
		return
	}
	l.over = true
	if l.closing != nil {
		err = l.closing // and the peer was quick
	}
	l.arrived = nil
	clear(l.streams)
	l.mu.Unlock()
	l.cancel(err)
	l.out.failWith(err)
	for _, h := range l.channels {
		h.Close(err)
	}
	l.Gone(err)
	_ = l.Conduit.Close() // the reader ends
}

// breach ends the session because the peer breaks the rules.
func (l *Session) breach(err error) {
	l.End(&wire.Error{Op: "link with", Peer: l.Peer, Err: wire.ErrPeerLost, Reason: "it breaks the rules of the wire", Cause: err})
}

// goodbye gives what was sent before, and the reason, a moment to leave.
func (l *Session) goodbye(reason string) {
	if l.out.control(chunk{kind: chunkClose}, []byte(reason)) != nil {
		return
	}
	for wait := time.Duration(0); wait < 50*time.Millisecond && !l.out.idle(); wait += time.Millisecond {
		time.Sleep(time.Millisecond) // the peer reads without waiting for anybody, so this is rare
	}
}

// Close ends the link in good order.
func (l *Session) Close(reason string) error {
	reason = wire.Truncate(reason)
	l.mu.Lock()
	first := !l.over && l.closing == nil
	if first {
		l.closing = &wire.Error{Op: "link with", Peer: l.Peer, Err: wire.ErrClosed, Reason: reason}
	}
	l.mu.Unlock()
	if first {
		l.goodbye(reason)
		l.End(l.closing)
	}
	<-l.ctx.Done()
	return nil
}

// suspect asks the peer for a sign of life, and ends the link where none comes, or where the peer
// broke the rules.
func (l *Session) suspect(why error) {
	if errors.Is(why, wire.ErrFrame) {
		l.breach(why)
		return
	}
	const least = 500 * time.Millisecond
	patience := least
	if l.RTT != nil {
		patience = max(least, 4*l.RTT())
	}
	n := l.pinged.Add(1)
	if l.out.control(chunk{kind: chunkPing, number: n}, nil) != nil {
		return
	}
	time.AfterFunc(patience, func() { // does nothing to a link that has ended
		if l.pongs.Load() < n {
			l.End(&wire.Error{Op: "link with", Peer: l.Peer, Err: wire.ErrPeerLost, Reason: fmt.Sprintf("a connection broke, and no answer came within %v", patience), Cause: why})
		}
	})
}
