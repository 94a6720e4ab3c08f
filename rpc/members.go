package rpc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/rpc/refs"
	"github.com/weft-project/weft/rpc/roster"
	"github.com/weft-project/weft/transport"
)

// meshUpTo is how large a world may be in which all link with all at once.
const meshUpTo = 8

// laterBy is how long a worker waits for one that is expected to dial: on a machine that is busy
// with the joining of many, long.
const laterBy = 3 * time.Second

// event tells the roster what happened, and does what it says.
func (w *Worker) event(happened func(r *roster.Roster)) {
	w.mu.Lock()
	happened(w.roster)
	over := w.applyLocked()
	w.mu.Unlock()
	w.mourn(over)
}

// applyLocked does what the roster asks for. The caller holds w.mu, and has mourn called with the
// result when it does not any more.
func (w *Worker) applyLocked() (over []*peer) {
	for _, a := range w.roster.Actions() {
		switch a.Kind {
		case roster.Changed:
			p := w.turnLocked(a)
			if a.State >= roster.Left {
				over = append(over, p)
			}
		case roster.Dial:
			w.dialLocked(w.peers[a.Member.Rank], a.Later)
		case roster.Tell:
			w.tellLocked(w.peers[a.To], a.News)
		case roster.Bury:
			if w.closed { // serveLink does it
				w.graves = append(w.graves, a.Member)
			} else {
				w.work.Go(func() { w.registry.bury(a.Member, w.name) })
			}
		}
	}
	return over
}

// turnLocked notes what has become of a member.
func (w *Worker) turnLocked(a roster.Action) *peer {
	p := w.peers[a.Member.Rank]
	switch a.State {
	case roster.Known:
		p = w.newPeer(a.Member)
		w.peers[p.rank], w.byName[p.name] = p, p
		w.refs.meet(p.node)
		if n, ok := w.net.(transport.Acquainted); ok {
			n.Acquaint(p.addr)
		}
	case roster.Leaving:
		p.leaving = true
	case roster.Left:
		p.gone = fmt.Errorf("%w: %s: %w", ErrPeerLeft, p.name, a.Cause)
	case roster.Lost:
		p.gone = fmt.Errorf("%w: %s: %w", ErrPeerLost, p.name, a.Cause)
		if !w.closed && !p.leaving {
			w.log.Warn("lost a worker", "worker", w.name, "peer", p.name, "err", a.Cause)
		}
	}
	w.changedLocked()
	w.notifyLocked(p, a.State, a.Cause)
	return p
}

func (w *Worker) newPeer(m roster.Member) *peer {
	p := &peer{w: w, name: m.Name, rank: m.Rank, node: refs.Node{Rank: m.Rank, Epoch: m.Incarnation}, addr: m.Addr}
	p.there, p.back = w.me.Maps[m.Name], m.Maps[w.name].Reverse()
	return p
}

// mourn ends what depends on lives that are over.
func (w *Worker) mourn(over []*peer) {
	for _, p := range over {
		for _, l := range p.links() {
			_ = l.Close("the life of this link is over") // mostly it is gone already
		}
		w.refs.do(func(m *refs.Machine, now time.Time) { m.Lose(now, p.node) })
		w.passes.PeerLost(ctx.WorkerID(p.rank), p.lost())
	}
}

// dialLocked links with a peer, now or when it has had the time to do so itself.
func (w *Worker) dialLocked(p *peer, later bool) {
	switch {
	case w.closed:
	case !later:
		p.attemptLocked()
	default:
		w.work.Go(func() {
			c, cancel := context.WithTimeout(w.life, laterBy)
			defer cancel()
			_ = w.await(c, func() bool { return p.link != nil || p.gone != nil }) // or the time is up
			w.mu.Lock()
			defer w.mu.Unlock()
			if p.link == nil && p.gone == nil && !w.closed {
				p.attemptLocked()
			}
		})
	}
}

// dialInTurn links with the older of some peers, one after the other: a host on which many workers
// join has so much to do for each link that all at once would take longer than any of them may. The
// younger are expected to dial.
func (w *Worker) dialInTurn(peers []*peer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var mine []*peer
	for _, p := range peers {
		if p.node.Epoch < w.epoch {
			mine = append(mine, p)
		} else {
			w.dialLocked(p, true)
		}
	}
	if w.closed {
		return
	}
	w.work.Go(func() {
		for _, p := range mine {
			_, _ = p.connection(w.life) // where it fails, the roster knows
		}
	})
}

// maxNews is how much news goes into one message.
const maxNews = 128

// tellLocked queues news for a peer. What comes while a message is under way goes into the next.
func (w *Worker) tellLocked(p *peer, news ...roster.News) {
	if w.closed || p.gone != nil {
		return
	}
	p.outbox = append(p.outbox, news...)
	if !p.telling {
		p.telling = true
		w.work.Go(func() { w.deliver(p) })
	}
}

// deliver sends what is queued for a peer, in order.
func (w *Worker) deliver(p *peer) {
	for {
		w.mu.Lock()
		if len(p.outbox) == 0 || p.gone != nil || w.closed {
			p.outbox, p.telling = nil, false
			w.changedLocked()
			w.mu.Unlock()
			return
		}
		batch := p.outbox[:min(len(p.outbox), maxNews)]
		p.outbox = p.outbox[len(batch):]
		w.mu.Unlock()
		c, cancel := context.WithTimeout(w.life, helloTimeout)
		_, err := w.ask(c, p, wire.KindNews, wire.NewsHeader{News: batch})
		cancel()
		var refused *RemoteError
		if errors.As(err, &refused) && errors.Is(err, ErrLeft) {
			w.log.Debug("a worker that leaves takes no news", "worker", w.name, "peer", p.name, "err", err)
		} else if errors.As(err, &refused) {
			w.log.Warn("a worker does not take news", "worker", w.name, "peer", p.name, "err", err)
		} else if err != nil && p.lost() == nil { // it may be slow; a link that is gone makes it gone
			w.mu.Lock()
			p.outbox = append(slices.Clone(batch), p.outbox...)
			w.mu.Unlock()
			_ = pause(w.life, pollEvery) // or the worker ends
		}
	}
}

// serveNews takes news from a peer.
func (w *Worker) serveNews(p *peer, m *transport.Message) error {
	var h wire.NewsHeader
	if err := wire.Decode(m.Header, &h); err != nil {
		return err
	}
	for i := range h.News {
		about := &h.News[i].Member
		if err := checkMember(about); err != nil {
			return err
		}
		if about.World != w.world {
			return fmt.Errorf("%w: news of %s, in a world of %d", ErrWorldSize, about.Name, about.World)
		}
	}
	c, cancel := context.WithTimeout(w.life, lookupTimeout)
	defer cancel()
	for _, n := range h.News {
		if err := w.proven(c, &n.Member); err != nil { // it may be over by now, which is no fault of who tells
			w.log.Warn("does not believe news", "worker", w.name, "from", p.name, "err", err)
			continue
		}
		w.event(func(r *roster.Roster) { r.Gossip(p.rank, n) })
	}
	return nil
}

// peerAt is the present life at a rank, nil where there is none.
func (w *Worker) peerAt(rank int) *peer {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.peers[rank]
}

// lookup finds a peer by name. In a dynamic world one that is not known yet may be in the store.
func (w *Worker) lookup(c context.Context, name string) (*peer, error) {
	p, err := w.find(name)
	if err == nil || w.world != 0 {
		return p, err
	}
	c, cancel := context.WithTimeout(c, lookupTimeout)
	defer cancel()
	rank, ok := rankOf(name)
	if !ok {
		have, perr := w.registry.peek(c, nameKey(name))
		if perr != nil || have == "" {
			return nil, err
		}
		if rank, _, _, perr = parseNameClaim(strings.TrimPrefix(have, lostMark)); perr != nil {
			return nil, err
		}
	}
	if w.seek(c, rank) == nil {
		return nil, err
	}
	return w.find(name)
}

// lookupTimeout bounds asking the store for a worker: the store may be gone.
const lookupTimeout = 2 * time.Second

// seek is the peer at a rank; in a dynamic world one that is not known yet may be in the store. nil
// where there is none.
func (w *Worker) seek(c context.Context, rank int) *peer {
	if p := w.peerAt(rank); p != nil || w.world != 0 || rank < 0 {
		return p
	}
	c, cancel := context.WithTimeout(c, lookupTimeout)
	defer cancel()
	if r, err := w.registry.recordOf(c, rank); err == nil && r.Member != nil && r.World == 0 {
		m := *r.Member
		w.event(func(r *roster.Roster) { _ = r.Hear(m) }) // where it is of a life that is over, there is nobody
	}
	return w.peerAt(rank)
}
