package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/weft-project/weft/store/internal/door"
	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
	"github.com/weft-project/weft/store/internal/wire"
)

// tlsHello is the first byte of a TLS connection, and of no dialect.
const tlsHello = 0x16

// serve reads one client's commands until it goes or breaks a rule.
func (s *Server) serve(p *peer) {
	err := s.converse(p)
	broke := wire.BrokeRule(err)
	s.mu.Lock()
	var others []*peer
	if p.space != nil {
		s.replies = p.space.state.Leaves(p.id, s.replies[:0])
		others, _ = s.queue(p, state.OpPop, s.written())
		p.space.arriving.Add(-int64(p.holds))
	}
	if broke {
		s.counters.broken++
	}
	s.mu.Unlock()
	s.flushOthers(others)
	p.bye(broke)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.peers, p.id)
	s.door.Leave(p.visit)
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		return
	}
	level, about := slog.LevelDebug, ""
	if broke {
		level = slog.LevelWarn
	}
	var refused *refusedError
	if errors.As(err, &refused) { // who makes one mistake makes it again and again
		about = p.owner.account(p.nc.RemoteAddr()) + ": " + refused.what
	}
	s.say(level, about, "store closes a client", "client", p.nc.RemoteAddr(), "of", p.owner, "err", err)
}

func (s *Server) converse(p *peer) error {
	in, err := s.identify(p)
	if err != nil {
		return err
	}
	in.Took = func(bytes int) error { return s.reserve(p, bytes) }
	if err := in.Greeting(s.cfg.Dialect); err != nil {
		return p.overdue(err)
	}
	if err := p.speak(in.Protocol); err != nil {
		return err
	}
	for {
		cmd, err := in.Command()
		if !p.proved {
			if err = p.overdue(err); err == nil {
				err = s.prove(p, door.Guest)
			}
		}
		if err == nil {
			err = s.handle(p, in, &cmd)
		} else if in.Own && wire.BrokeRule(err) {
			_, _ = p.enqueue(state.Reply{To: p.id, Op: cmd.Op, Err: err}, cmd.Op, 0) // the last it hears
		}
		if err != nil {
			return err
		}
		if p.holds > 0 {
			_ = s.reserve(p, 0)
		}
	}
}

// identify finds out whether the client speaks TLS, and with that which keys it sees. It refuses
// who has to and does not.
func (s *Server) identify(p *peer) (*wire.Decoder, error) {
	in := wire.NewDecoder(p, wire.Protocol{}, s.limits)
	plain := s.takesPlain(p.owner)
	if plain != nil && s.cfg.TLS == nil {
		return nil, s.turnAway(p, plain)
	}
	leisure := plain == nil && p.owner.ours()
	s.hurry(p, leisure)
	first, err := in.Reader.Peek(1)
	for plain == nil && errors.Is(err, os.ErrDeadlineExceeded) && s.patient(p) {
		s.hurry(p, false)
		first, err = in.Reader.Peek(1)
	}
	if err != nil {
		return nil, p.overdue(err)
	}
	s.hurry(p, leisure)
	switch {
	case first[0] != tlsHello && plain == nil:
		if p.space = &s.members; s.cfg.TLS != nil {
			p.space = &s.guests
		}
		return in, nil
	case first[0] != tlsHello:
		return nil, s.turnAway(p, plain)
	case s.cfg.TLS == nil:
		p.refuse(wire.RefusesTLS)
		return nil, refused("it speaks TLS, for which this server has no identity", nil)
	}
	head, _ := in.Reader.Peek(in.Reader.Buffered())
	conn := tls.Server(&resumed{Conn: p.nc, head: head}, s.cfg.TLS)
	c, cancel := context.WithTimeout(context.Background(), proofWithin)
	defer cancel()
	if err := conn.HandshakeContext(c); err != nil {
		return nil, refused(whyNoTLS(err), err)
	}
	p.conn, p.raw, p.space = conn, nil, &s.members
	return wire.NewDecoder(p, wire.Protocol{}, s.limits), s.prove(p, door.Member)
}

// turnAway tells a client that plain text is not taken from it, and gives why. Of a server without
// TLS, only another user of this host is told anything.
func (s *Server) turnAway(p *peer, why error) error {
	switch {
	case s.cfg.Plain == PlainAuto && p.owner.err == nil:
		p.refuse(wire.RefusesUser)
	case s.cfg.TLS != nil:
		p.refuse(wire.RefusesPlain)
	}
	return why
}

// refuse tells a client why it is not served. It may have gone.
func (p *peer) refuse(why string) { _, _ = p.nc.Write([]byte(why)) }

// refusedError is that a client is not served, and why.
type refusedError struct {
	error
	what string
}

func (e *refusedError) Unwrap() error { return e.error }

// refused is a refusedError. cause is the handshake's error, nil if there was none.
func refused(what string, cause error) error {
	err := fmt.Errorf("%w: %s", kv.ErrProtocol, what)
	if cause != nil {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return &refusedError{err, what}
}

// whyNoTLS says what a failed handshake means.
func whyNoTLS(err error) string {
	switch {
	case strings.Contains(err.Error(), "unsupported application protocols"): // they name the job's id
		return "the peer is of another job's id, or is no worker of Weft"
	case wire.RefusedTLS(err):
		return "the peer has another secret than this store, or another CA"
	}
	return "TLS handshake"
}

// resumed is a connection of which something was read already.
type resumed struct {
	net.Conn
	head []byte
}

func (r *resumed) Read(b []byte) (int, error) {
	if len(r.head) > 0 {
		n := copy(b, r.head)
		r.head = r.head[n:]
		return n, nil
	}
	return r.Conn.Read(b)
}

// reserve counts what a half-read command holds in all, and refuses it when those of all clients of
// a space hold too much.
func (s *Server) reserve(p *peer, bytes int) error {
	total := p.space.arriving.Add(int64(bytes - p.holds))
	p.holds = bytes
	if bytes > 0 && total > int64(s.limits.Memory) {
		return fmt.Errorf("%w: half-sent commands of all clients have %d bytes, at most %d allowed", kv.ErrFull, total, s.limits.Memory)
	}
	return nil
}

// handle does what a client asks. Nothing in it waits for another client.
func (s *Server) handle(p *peer, in *wire.Decoder, cmd *state.Command) error {
	switch {
	case cmd.Op == state.OpValidate:
		return nil
	case cmd.Op == state.OpPing:
		_, err := p.enqueue(state.Reply{To: p.id, Op: state.OpPing, N: cmd.Delta}, state.OpPing, 0)
		return err
	case in.AsksOwnMode(cmd) && !in.Own:
		if _, err := p.enqueue(state.Reply{To: p.id, Op: state.OpCheck, OK: true}, state.OpCheck, 0); err != nil {
			return err
		}
		in.Own = true
		return p.speak(in.Protocol)
	}
	cmd.Turn = cmd.Op == state.OpWait && in.Dialect == wire.Dialect22 && !in.Own
	others, err := s.apply(p, cmd)
	if err == nil && (len(others) > 0 || p.full()) {
		err = p.flush() // first, as who asked should not wait until all others have heard of it
	}
	s.flushOthers(others)
	return err
}

// apply changes the state and queues the replies. It returns the other clients who have something
// to be written now. Those are not written before what has changed until now is in the journal.
func (s *Server) apply(p *peer, cmd *state.Command) (others []*peer, failed error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counters.commands[cmd.Op]++
	after := s.change(p, cmd)
	if others, failed = s.queue(p, cmd.Op, after); failed != nil {
		failed = fmt.Errorf("key %q: %w", kv.Clip(cmd.Key), failed)
	}
	return others, failed
}

// queue gives those who have replies these to write. failed is for p, who caused them.
func (s *Server) queue(p *peer, cause state.Op, after uint64) (others []*peer, failed error) {
	for _, r := range s.replies {
		to := s.peers[r.To]
		call, err := to.enqueue(r, cause, after)
		switch {
		case err != nil && to == p:
			failed = err
		case call && to != p:
			others = append(others, to)
		}
	}
	if clear(s.replies); cap(s.replies) > 1024 {
		s.replies = nil
	}
	return others, failed
}

// change applies a command, if there is a journal only while that can be written. It returns the
// record that the replies depend on.
func (s *Server) change(p *peer, cmd *state.Command) (after uint64) {
	k := s.keeper
	if k == nil {
		s.replies = p.space.state.Apply(p.id, *cmd, s.replies[:0])
		return 0
	}
	if err := k.Err(); err != nil {
		s.replies = append(s.replies[:0], state.Reply{To: p.id, Op: cmd.Op, Err: err})
		return 0
	}
	before := k.last
	s.replies = p.space.state.Apply(p.id, *cmd, s.replies[:0])
	if k.last > before {
		p.owes(k.last)
		if k.due(s.members.state.Stats().Bytes+s.guests.state.Stats().Bytes) && !s.closed {
			s.wg.Go(s.compact)
		}
	}
	return k.last
}

// written is the last record of the journal, or 0.
func (s *Server) written() uint64 {
	if s.keeper == nil {
		return 0
	}
	return s.keeper.last
}

// many is how many clients one goroutine writes to.
const many = 64

// flushOthers has the replies of others written. A crowd is told by goroutines, so that who caused
// it can go on.
func (s *Server) flushOthers(others []*peer) {
	if len(others) <= many {
		s.write(others)
		return
	}
	for chunk := range slices.Chunk(others, max(many, len(others)/runtime.GOMAXPROCS(0))) {
		s.wg.Go(func() { s.write(chunk) })
	}
}

func (s *Server) write(to []*peer) {
	for _, p := range to {
		if p.write() {
			s.wg.Go(func() { _ = p.flush() })
		}
	}
}
