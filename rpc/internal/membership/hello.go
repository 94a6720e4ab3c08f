package membership

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-project/weft/rpc/internal/roster"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/transport"
)

// greet tells the worker at the other end of a new link who dialled, and hears whether it agrees.
func (ms *Members) greet(c context.Context, link transport.Link, p *Peer) (answer wire.HelloAnswer, err error) {
	ms.mu.Lock()
	h := wire.HelloHeader{Member: ms.Me, To: p.Name, Life: p.Node.Epoch, Digest: ms.roster.Digest()}
	ms.mu.Unlock()
	value, err := ms.shell.AskOn(c, link, wire.KindHello, h)
	if err != nil {
		return answer, err
	}
	return answer, wire.Decode(value, &answer)
}

// AcceptLinks takes links until the worker ends: from the start, as who dials waits for it, but
// nobody is heard before this worker knows the others. Each link must greet before anything else is
// read from it.
func (ms *Members) AcceptLinks() {
	for {
		link, err := ms.Listener.Accept(ms.life)
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
				ms.log.Warn("refused a link", "worker", ms.Me.Name, "from", link.RemoteAddr(), "err", err)
				ms.linger(link)
				_ = link.Close("refused") // the peer got the reason as its answer
			}
		})
	}
}

// linger gives a refused peer the time to read why, and to close the link itself: closing it here
// could overtake the answer.
func (ms *Members) linger(link transport.Link) {
	c, cancel := context.WithTimeout(ms.life, HelloTimeout)
	defer cancel()
	select {
	case <-link.Done():
	case <-c.Done():
	}
}

// welcome hears a greeting, answers it, and puts the link to use.
func (ms *Members) welcome(link transport.Link) error {
	c, cancel := context.WithTimeout(ms.life, HelloTimeout)
	defer cancel()
	s, err := link.Accept(c)
	if err != nil {
		return err
	}
	defer s.Reset(nil)
	m, err := s.Recv(c, wire.NoTensors)
	if err != nil {
		return err
	}
	if m.Kind == wire.KindStatus {
		return ms.shell.Observed(link, s, m)
	}
	p, answer, err := ms.admit(c, link, m)
	if err == nil && !answer.Crossed && p.Rank != ms.Me.Rank {
		err = ms.adopt(p, link, answer.Sync)
	}
	var value []byte
	if err == nil {
		value, err = wire.Encode(answer)
	}
	if serr := ms.shell.Reply(s, value, err); serr == nil {
		_, _ = s.Recv(c, wire.NoTensors) // the peer's end, so that nothing is reset under it
	} else if err == nil {
		err = serr
	}
	switch {
	case err == nil && answer.Crossed:
		ms.linger(link)
		return link.Close("crossed")
	case err == nil && p.Rank == ms.Me.Rank:
		return ms.adoptSelf(p, link)
	}
	return err
}

// admit checks a greeting. Who has not been heard of yet is taken in.
func (ms *Members) admit(c context.Context, link transport.Link, m *transport.Message) (*Peer, wire.HelloAnswer, error) {
	var h wire.HelloHeader
	no := func(format string, args ...any) (*Peer, wire.HelloAnswer, error) {
		return nil, wire.HelloAnswer{}, fmt.Errorf(format, args...)
	}
	if m.Kind != wire.KindHello {
		return no("%w: a link must begin with a greeting, not kind %d", wire.ErrProtocol, m.Kind)
	}
	if err := wire.Decode(m.Header, &h); err != nil {
		return nil, wire.HelloAnswer{}, err
	}
	switch {
	case h.World != ms.Me.World:
		return no("%w: %s was told of %s, %s of %s", ErrWorldSize, h.Name, worldText(h.World), ms.Me.Name, worldText(ms.Me.World))
	case h.To != ms.Me.Name || h.Life != ms.Me.Incarnation:
		return no("%w: %s means to reach %s; this is %s, in another life perhaps", ErrRefused, h.Name, h.To, ms.Me.Name)
	case ms.Me.World > 0 && h.Rank >= ms.Me.World:
		return no("%w: rank %d in a world of %d", ErrRefused, h.Rank, ms.Me.World)
	}
	if err := checkMember(&h.Member); err != nil {
		return no("%w: %w", ErrRefused, err)
	}
	if err := link.Vouches(h.Name, h.Rank); err != nil {
		return no("%w: %w", ErrRefused, err)
	}
	if err := ms.Proven(c, &h.Member); err != nil {
		return no("%w: %w", ErrRefused, err)
	}
	if err := ms.hear(&h.Member); err != nil {
		return nil, wire.HelloAnswer{}, err
	}
	ms.mu.Lock()
	defer ms.mu.Unlock()
	p := ms.peers[h.Rank]
	if p == nil || p.Node.Epoch != h.Incarnation || p.gone != nil {
		return no("%w: %s of rank %d is gone", ErrRefused, h.Name, h.Rank)
	}
	crossed := p.Rank != ms.Me.Rank && (p.link != nil || p.dial != nil && ms.Me.Rank < p.Rank)
	return p, wire.HelloAnswer{Crossed: crossed, Sync: h.Digest != ms.roster.Digest()}, nil
}

// hear takes in who greets. A newcomer must fit this worker's device maps, and this worker its.
func (ms *Members) hear(m *roster.Member) (err error) {
	if p := ms.PeerAt(m.Rank); p == nil || p.Node.Epoch != m.Incarnation {
		if err := checkMaps([]*roster.Member{&ms.Me, m}, false); err != nil {
			return err
		}
	}
	ms.Event(func(r *roster.Roster) {
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

// Proven refuses a life that would take the place of one that this worker knows, by rank or by
// name, unless the store has it at its rank. Whoever claims a place leaves it there first; a
// greeting and news are words of members, any of whom could say so.
func (ms *Members) Proven(c context.Context, m *roster.Member) error {
	if !ms.replaces(m) {
		return nil
	}
	c, cancel := context.WithTimeout(c, lookupTimeout)
	defer cancel()
	r, err := ms.Registry.recordOf(c, m.Rank)
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
func (ms *Members) replaces(m *roster.Member) bool {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	for _, p := range []*Peer{ms.peers[m.Rank], ms.byName[m.Name]} {
		if p != nil && p.Node.Epoch <= m.Incarnation && (p.Node.Epoch != m.Incarnation || p.Rank != m.Rank || p.Name != m.Name) {
			return true
		}
	}
	return false
}
