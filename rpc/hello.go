package rpc

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/rpc/roster"
	"github.com/weft-project/weft/transport"
)

// greet tells the worker at the other end of a new link who dialled, and hears whether it agrees.
func (w *Worker) greet(c context.Context, link transport.Link, p *peer) (answer wire.HelloAnswer, err error) {
	w.mu.Lock()
	h := wire.HelloHeader{Member: w.me, To: p.name, Life: p.node.Epoch, Digest: w.roster.Digest()}
	w.mu.Unlock()
	header, err := wire.Encode(h)
	if err != nil {
		return answer, err
	}
	reply, err := exchange(c, link, &transport.Message{Kind: wire.KindHello, Header: header}, nil)
	if err != nil {
		return answer, ctx.AsTimeout(err)
	}
	defer reply.Release()
	var rh wire.ReplyHeader
	if err := w.parseReply(reply, &rh); err != nil {
		return answer, err
	}
	return answer, wire.Decode(rh.Value, &answer)
}

// acceptLinks takes links until the worker ends: from the start, as who dials waits for it, but
// nobody is heard before this worker knows the others. Each link must greet before anything else is
// read from it.
func (w *Worker) acceptLinks() {
	for {
		link, err := w.listener.Accept(w.life)
		if err != nil {
			return
		}
		w.work.Go(func() {
			select {
			case <-w.ready:
			case <-w.life.Done():
				_ = link.Close("left")
				return
			case <-link.Done():
				return
			}
			err := w.welcome(link)
			switch {
			case errors.Is(err, transport.ErrPeerClosed) || errors.Is(err, transport.ErrClosed), w.life.Err() != nil: // who only looked whether somebody is here
				_ = link.Close("nothing was said")
			case err != nil:
				w.log.Warn("refused a link", "worker", w.name, "from", link.RemoteAddr(), "err", err)
				w.linger(link)
				_ = link.Close("refused") // the peer got the reason as its answer
			}
		})
	}
}

// linger gives a refused peer the time to read why, and to close the link itself: closing it here
// could overtake the answer.
func (w *Worker) linger(link transport.Link) {
	c, cancel := context.WithTimeout(w.life, helloTimeout)
	defer cancel()
	select {
	case <-link.Done():
	case <-c.Done():
	}
}

// welcome hears a greeting, answers it, and puts the link to use.
func (w *Worker) welcome(link transport.Link) error {
	c, cancel := context.WithTimeout(w.life, helloTimeout)
	defer cancel()
	s, err := link.Accept(c)
	if err != nil {
		return err
	}
	defer s.Reset(nil)
	m, err := s.Recv(c, noTensors)
	if err != nil {
		return err
	}
	if m.Kind == wire.KindStatus {
		return w.observed(link, s, m)
	}
	p, answer, err := w.admit(c, link, m)
	if err == nil && !answer.Crossed && p.rank != w.rank {
		err = w.adopt(p, link, answer.Sync)
	}
	var h wire.ReplyHeader
	if err == nil {
		h.Value, err = wire.Encode(answer)
	}
	if serr := w.reply(s, &h, nil, err); serr == nil {
		_, _ = s.Recv(c, noTensors) // the peer's end, so that nothing is reset under it
	} else if err == nil {
		err = serr
	}
	switch {
	case err == nil && answer.Crossed:
		w.linger(link)
		return link.Close("crossed")
	case err == nil && p.rank == w.rank:
		return w.adoptSelf(p, link)
	}
	return err
}

// admit checks a greeting. Who has not been heard of yet is taken in.
func (w *Worker) admit(c context.Context, link transport.Link, m *transport.Message) (*peer, wire.HelloAnswer, error) {
	var h wire.HelloHeader
	no := func(format string, args ...any) (*peer, wire.HelloAnswer, error) {
		return nil, wire.HelloAnswer{}, fmt.Errorf(format, args...)
	}
	if m.Kind != wire.KindHello {
		return no("%w: a link must begin with a greeting, not kind %d", ErrProtocol, m.Kind)
	}
	if err := wire.Decode(m.Header, &h); err != nil {
		return nil, wire.HelloAnswer{}, err
	}
	switch {
	case h.World != w.world:
		return no("%w: %s was told of %s, %s of %s", ErrWorldSize, h.Name, worldText(h.World), w.name, worldText(w.world))
	case h.To != w.name || h.Life != w.epoch:
		return no("%w: %s means to reach %s; this is %s, in another life perhaps", ErrRefused, h.Name, h.To, w.name)
	case w.world > 0 && h.Rank >= w.world:
		return no("%w: rank %d in a world of %d", ErrRefused, h.Rank, w.world)
	}
	if err := checkMember(&h.Member); err != nil {
		return no("%w: %w", ErrRefused, err)
	}
	if err := link.Vouches(h.Name, h.Rank); err != nil {
		return no("%w: %w", ErrRefused, err)
	}
	if err := w.proven(c, &h.Member); err != nil {
		return no("%w: %w", ErrRefused, err)
	}
	if err := w.hear(&h.Member); err != nil {
		return nil, wire.HelloAnswer{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.peers[h.Rank]
	if p == nil || p.node.Epoch != h.Incarnation || p.gone != nil {
		return no("%w: %s of rank %d is gone", ErrRefused, h.Name, h.Rank)
	}
	crossed := p.rank != w.rank && (p.link != nil || p.dial != nil && w.rank < p.rank)
	return p, wire.HelloAnswer{Crossed: crossed, Sync: h.Digest != w.roster.Digest()}, nil
}

// hear takes in who greets. A newcomer must fit this worker's device maps, and this worker its.
func (w *Worker) hear(m *roster.Member) (err error) {
	if p := w.peerAt(m.Rank); p == nil || p.node.Epoch != m.Incarnation {
		if err := checkMaps([]*roster.Member{&w.me, m}, false); err != nil {
			return err
		}
	}
	w.event(func(r *roster.Roster) {
		if err = r.Hear(*m); err != nil {
			err = fmt.Errorf("%w: %s of rank %d: %w", ErrRefused, m.Name, m.Rank, err)
		}
	})
	return err
}

// worldText says what kind of world that is.
func worldText(n int) string {
	if n == 0 {
		return "a dynamic world"
	}
	return fmt.Sprintf("a world of %d", n)
}

// proven refuses a life that would take the place of one that this worker knows, by rank or by
// name, unless the store has it at its rank. Whoever claims a place leaves it there first; a
// greeting and news are words of members, any of whom could say so.
func (w *Worker) proven(c context.Context, m *roster.Member) error {
	if !w.replaces(m) {
		return nil
	}
	c, cancel := context.WithTimeout(c, lookupTimeout)
	defer cancel()
	r, err := w.registry.recordOf(c, m.Rank)
	switch {
	case err != nil:
		return fmt.Errorf("%s of rank %d comes in the place of another, which the store does not confirm: %w", m.Name, m.Rank, err)
	case r.Member == nil:
		return fmt.Errorf("%s of rank %d comes in the place of another, but the store has nobody at that rank", m.Name, m.Rank)
	case r.Name != m.Name || r.Incarnation != m.Incarnation || r.Addr != m.Addr:
		return fmt.Errorf("%s of rank %d comes in the place of another, but the store has another life at that rank, %s at %q", m.Name, m.Rank, r.Name, r.Addr)
	}
	return nil
}

// replaces says whether a life is another than this worker knows at its rank or under its name, and
// not an older one.
func (w *Worker) replaces(m *roster.Member) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range []*peer{w.peers[m.Rank], w.byName[m.Name]} {
		if p != nil && p.node.Epoch <= m.Incarnation && (p.node.Epoch != m.Incarnation || p.rank != m.Rank || p.name != m.Name) {
			return true
		}
	}
	return false
}
