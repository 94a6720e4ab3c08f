package transport

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// sessionConfig is what both ends of a session have agreed on, and what is this end's alone.
type sessionConfig struct {
	codec   *Codec
	pieces  *Pieces
	dialler bool
	peer    string // for errors
	accepts uint64 // how many streams the peer may have open at a time
	opens   uint64 // how many this end may have open at first; the peer allows more as it finishes them
	inline  int64  // messages whose tensors have at most that many bytes travel in frames
	conduit conduit
	count   *traffic // of the conduit
	// explain says what a failed read or write on the conduit means for the link.
	explain func(op string, err error) error
	// gone is called once, when the session has ended.
	gone func(err error)
	rtt  func() time.Duration // of the path, for suspicions; nil means that it is short
}

// session carries a link's streams over one conduit, and asks haulers to carry their large tensors. One goroutine
// reads; it never waits for who uses the streams. Locks: a stream's mu before out.mu before mu.
type session struct {
	sessionConfig
	haulers []hauler      // in order of preference; set before start
	passed  atomic.Uint64 // messages that LaneState.Passed counts
	counts  []*traffic
	out     outbox
	ctx     context.Context // ends with the link; its cause is the link's error
	cancel  context.CancelCauseFunc
	budget  budget // bytes of tensors that are being received
	number  uint64 // of the next stream of this end; guarded by out.mu

	arrival chan struct{} // a token: arrived may have something
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

// newSession makes a session. It does nothing before start.
func newSession(cfg sessionConfig) *session {
	l := &session{
		sessionConfig: cfg, streams: map[uint64]*stream{},
		arrival: make(chan struct{}, 1), opening: make(chan struct{}, 1),
		openable: cfg.opens, allowed: cfg.opens, granted: cfg.accepts,
	}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	l.budget.total = cfg.codec.lim.MaxPeerBytes
	l.out = outbox{conduit: cfg.conduit, count: cfg.count, fail: l.unwritten}
	return l
}

// haul adds a hauler, of the least preference so far.
func (l *session) haul(make func(laneEnv) hauler) {
	count := &traffic{}
	var h hauler
	h = make(laneEnv{
		say:     func(b []byte) error { return l.out.control(chunk{kind: chunkWord, lane: laneCode(h.lane())}, b) },
		suspect: l.suspect,
		count:   count,
		frames:  l.count,
		begin:   l.beginBut,
		find:    l.hauler,
	})
	l.haulers, l.counts = append(l.haulers, h), append(l.counts, count)
}

// account adds what has travelled by a lane to its state, and why it is not used any more.
func (l *session) account(state *LaneState) {
	if state.Name == LaneCUDA {
		state.Passed = l.passed.Load()
	}
	for k, h := range l.haulers {
		if h.lane() == state.Name {
			state.Sent += l.counts[k].sent.Load()
			state.Received += l.counts[k].received.Load()
			if d, ok := h.(failing); ok {
				state.Why = d.why()
			}
		}
	}
}

// unwritten is told of a failed write. Where the peer has closed the conduit, it is the reader who finds out why: there
// may be its last words.
func (l *session) unwritten(err error) {
	if !isHangUp(err) {
		l.end(l.explain("write to", err))
		return
	}
	time.AfterFunc(lastWords, func() { l.end(l.explain("write to", err)) }) // does nothing to a link that has ended
}

// lastWords is how long the reader may take to find out why a peer has hung up.
const lastWords = 2 * time.Second

func (l *session) start() { go l.read() }

func (l *session) hauler(code byte) hauler {
	for _, h := range l.haulers {
		if laneCode(h.lane()) == code {
			return h
		}
	}
	return nil
}

func (l *session) Open(c context.Context) (Stream, error) {
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
func (l *session) tryOpen(c context.Context) (Stream, error) {
	if err := l.Err(); err != nil {
		return nil, err
	}
	if err := c.Err(); err != nil {
		return nil, &Error{Op: "open a stream to", Peer: l.peer, Err: err}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.openable == 0 {
		return nil, nil //nolint:nilnil // as said above
	}
	if l.openable--; l.openable > 0 {
		wake(l.opening)
	}
	return newStream(l), nil
}

// unopened takes back a stream of which the peer never heard.
func (l *session) unopened() {
	l.mu.Lock()
	l.openable++
	l.mu.Unlock()
	wake(l.opening)
}

func (l *session) Accept(c context.Context) (Stream, error) {
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
			return nil, &Error{Op: "accept a stream from", Peer: l.peer, Err: c.Err()}
		}
	}
}

func (l *session) tryAccept() *stream {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.arrived) == 0 {
		return nil
	}
	s := l.arrived[0]
	l.arrived[0] = nil
	if l.arrived = l.arrived[1:]; len(l.arrived) > 0 {
		wake(l.arrival)
	}
	return s
}

func (l *session) RemoteAddr() string { return l.peer }

func (l *session) Done() <-chan struct{} { return l.ctx.Done() }

func (l *session) Err() error {
	if l.ctx.Err() == nil {
		return nil
	}
	return context.Cause(l.ctx)
}

// end ends the session, once.
func (l *session) end(err error) {
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
	l.out.end(err)
	for _, h := range l.haulers {
		h.close(err)
	}
	l.gone(err)
	_ = l.conduit.Close() // the reader ends
}

// breach ends the session because the peer breaks the rules.
func (l *session) breach(err error) {
	l.end(&Error{Op: "link with", Peer: l.peer, Err: ErrPeerLost, Reason: "it breaks the rules of the wire", Cause: err})
}

// goodbye gives what was sent before, and the reason, a moment to leave.
func (l *session) goodbye(reason string) {
	if l.out.control(chunk{kind: chunkClose}, []byte(reason)) != nil {
		return
	}
	for wait := time.Duration(0); wait < 50*time.Millisecond && !l.out.idle(); wait += time.Millisecond {
		time.Sleep(time.Millisecond) // the peer reads without waiting for anybody, so this is rare
	}
}

// Close ends the link in good order.
func (l *session) Close(reason string) error {
	reason = truncate(reason)
	l.mu.Lock()
	first := !l.over && l.closing == nil
	if first {
		l.closing = &Error{Op: "link with", Peer: l.peer, Err: ErrClosed, Reason: reason}
	}
	l.mu.Unlock()
	if first {
		l.goodbye(reason)
		l.end(l.closing)
	}
	<-l.ctx.Done()
	return nil
}

// suspect asks the peer for a sign of life, and ends the link where none comes, or where the peer broke the rules.
func (l *session) suspect(why error) {
	if errors.Is(why, ErrFrame) {
		l.breach(why)
		return
	}
	const least = 500 * time.Millisecond
	patience := least
	if l.rtt != nil {
		patience = max(least, 4*l.rtt())
	}
	n := l.pinged.Add(1)
	if l.out.control(chunk{kind: chunkPing, number: n}, nil) != nil {
		return
	}
	time.AfterFunc(patience, func() { // does nothing to a link that has ended
		if l.pongs.Load() < n {
			l.end(&Error{Op: "link with", Peer: l.peer, Err: ErrPeerLost, Reason: fmt.Sprintf("a connection broke, and no answer came within %v", patience), Cause: why})
		}
	})
}
