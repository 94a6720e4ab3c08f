package rpc

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/rpc/roster"
	"github.com/weft-project/weft/transport"
)

// greet tells the worker at the other end of a new link who dialled, and hears whether it agrees.
func (ms *members) greet(c context.Context, link transport.Link, p *peer) (answer wire.HelloAnswer, err error) {
	ms.mu.Lock()
	h := wire.HelloHeader{Member: ms.me, To: p.name, Life: p.node.Epoch, Digest: ms.roster.Digest()}
	ms.mu.Unlock()
	value, err := ms.shell.askOn(c, link, wire.KindHello, h)
	if err != nil {
		return answer, err
	}
	return answer, wire.Decode(value, &answer)
}

// acceptLinks takes links until the worker ends: from the start, as who dials waits for it, but
// nobody is heard before this worker knows the others. Each link must greet before anything else is
// read from it.
func (ms *members) acceptLinks() {
	for {
		link, err := ms.listener.Accept(ms.life)
		if err != nil {
			return
		}
		ms.work.Go(func() {
			select {
			case <-ms.ready:
			case <-ms.life.Done():
				_ = link.Close("left")
				return
			case <-link.Done():
				return
			}
			err := ms.welcome(link)
			switch {
			case errors.Is(err, transport.ErrPeerClosed) || errors.Is(err, transport.ErrClosed), ms.life.Err() != nil: // who only looked whether somebody is here
				_ = link.Close("nothing was said")
			case err != nil:
				ms.log.Warn("refused a link", "worker", ms.me.Name, "from", link.RemoteAddr(), "err", err)
				ms.linger(link)
				_ = link.Close("refused") // the peer got the reason as its answer
			}
		})
	}
}

// linger gives a refused peer the time to read why, and to close the link itself: closing it here
// could overtake the answer.
func (ms *members) linger(link transport.Link) {
	c, cancel := context.WithTimeout(ms.life, helloTimeout)
	defer cancel()
	select {
	case <-link.Done():
	case <-c.Done():
	}
}

// welcome hears a greeting, answers it, and puts the link to use.
func (ms *members) welcome(link transport.Link) error {
	c, cancel := context.WithTimeout(ms.life, helloTimeout)
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
		return ms.shell.observed(link, s, m)
	}
	p, answer, err := ms.admit(c, link, m)
	if err == nil && !answer.Crossed && p.rank != ms.me.Rank {
		err = ms.adopt(p, link, answer.Sync)
	}
	var value []byte
	if err == nil {
		value, err = wire.Encode(answer)
	}
	if serr := ms.shell.reply(s, value, err); serr == nil {
		_, _ = s.Recv(c, noTensors) // the peer's end, so that nothing is reset under it
	} else if err == nil {
		err = serr
	}
	switch {
	case err == nil && answer.Crossed:
		ms.linger(link)
		return link.Close("crossed")
	case err == nil && p.rank == ms.me.Rank:
		return ms.adoptSelf(p, link)
	}
	return err
}

// admit checks a greeting. Who has not been heard of yet is taken in.
func (ms *members) admit(c context.Context, link transport.Link, m *transport.Message) (*peer, wire.HelloAnswer, error) {
	var h wire.HelloHeader
	no := func(format string, args ...any) (*peer, wire.HelloAnswer, error) {
		return nil, wire.HelloAnswer{}, fmt.Errorf(format, args...)
	}
	if m.Kind != wire.KindHello {
		return no("%w: a link must begin with a greeting, not kind %d", wire.ErrProtocol, m.Kind)
	}
	if err := wire.Decode(m.Header, &h); err != nil {
		return nil, wire.HelloAnswer{}, err
	}
	switch {
	case h.World != ms.me.World:
		return no("%w: %s was told of %s, %s of %s", errWorldSize, h.Name, worldText(h.World), ms.me.Name, worldText(ms.me.World))
	case h.To != ms.me.Name || h.Life != ms.me.Incarnation:
		return no("%w: %s means to reach %s; this is %s, in another life perhaps", errRefused, h.Name, h.To, ms.me.Name)
	case ms.me.World > 0 && h.Rank >= ms.me.World:
		return no("%w: rank %d in a world of %d", errRefused, h.Rank, ms.me.World)
	}
	if err := checkMember(&h.Member); err != nil {
		return no("%w: %w", errRefused, err)
	}
	if err := link.Vouches(h.Name, h.Rank); err != nil {
		return no("%w: %w", errRefused, err)
	}
	if err := ms.proven(c, &h.Member); err != nil {
		return no("%w: %w", errRefused, err)
	}
	if err := ms.hear(&h.Member); err != nil {
		return nil, wire.HelloAnswer{}, err
	}
	ms.mu.Lock()
	defer ms.mu.Unlock()
	p := ms.peers[h.Rank]
	if p == nil || p.node.Epoch != h.Incarnation || p.gone != nil {
		return no("%w: %s of rank %d is gone", errRefused, h.Name, h.Rank)
	}
	crossed := p.rank != ms.me.Rank && (p.link != nil || p.dial != nil && ms.me.Rank < p.rank)
	return p, wire.HelloAnswer{Crossed: crossed, Sync: h.Digest != ms.roster.Digest()}, nil
}

// hear takes in who greets. A newcomer must fit this worker's device maps, and this worker its.
func (ms *members) hear(m *roster.Member) (err error) {
	if p := ms.peerAt(m.Rank); p == nil || p.node.Epoch != m.Incarnation {
		if err := checkMaps([]*roster.Member{&ms.me, m}, false); err != nil {
			return err
		}
	}
	ms.event(func(r *roster.Roster) {
		if err = r.Hear(*m); err != nil {
			err = fmt.Errorf("%w: %s of rank %d: %w", errRefused, m.Name, m.Rank, err)
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
func (ms *members) proven(c context.Context, m *roster.Member) error {
	if !ms.replaces(m) {
		return nil
	}
	c, cancel := context.WithTimeout(c, lookupTimeout)
	defer cancel()
	r, err := ms.registry.recordOf(c, m.Rank)
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
func (ms *members) replaces(m *roster.Member) bool {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	for _, p := range []*peer{ms.peers[m.Rank], ms.byName[m.Name]} {
		if p != nil && p.node.Epoch <= m.Incarnation && (p.node.Epoch != m.Incarnation || p.rank != m.Rank || p.name != m.Name) {
			return true
		}
	}
	return false
}
