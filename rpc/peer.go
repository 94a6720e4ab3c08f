package rpc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/rpc/refs"
	"github.com/weft-project/weft/transport"
)

// peer is another worker, or this one as the target of its own calls.
type peer struct {
	w     *Worker
	name  string
	rank  int
	node  refs.Node // for references
	addr  string
	there device.Map // mine → the peer's, for what leaves in calls
	back  device.Map // mine → the peer's, for what leaves in responses to its calls

	// guarded by w.mu
	link    transport.Link   // nil until linked
	served  []transport.Link // the other ends of links to oneself
	gone    error            // why the peer cannot be called any more
	leaving bool             // the peer has come to leave

	dial chan struct{} // holds one: one dial to oneself at a time
}

func (p *peer) links() []transport.Link {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	var ls []transport.Link
	if p.link != nil {
		ls = append(ls, p.link)
	}
	return append(ls, p.served...)
}

// connection is the link for calls. A link to oneself is made when it is first needed.
func (p *peer) connection(c context.Context) (transport.Link, error) {
	link, err := p.current()
	if link != nil || err != nil {
		return link, err
	}
	if p.rank != p.w.rank { // this worker is still joining, and the peer is about to link with it
		if err := p.w.await(c, func() bool { return p.link != nil || p.gone != nil || p.w.closed }); err != nil {
			return nil, fmt.Errorf("there is no link yet: %w", err)
		}
		return p.current()
	}
	select {
	case p.dial <- struct{}{}:
	case <-c.Done():
		return nil, ctx.AsTimeout(context.Cause(c))
	}
	defer func() { <-p.dial }()
	if link, err := p.current(); link != nil || err != nil {
		return link, err
	}
	c, stop := context.WithCancelCause(c)
	defer stop(nil)
	defer context.AfterFunc(p.w.life, func() { stop(context.Cause(p.w.life)) })() // a call ends with its link, but there is none yet
	link, err = p.w.dial(c, p)
	if err != nil {
		return nil, p.explain(c, err)
	}
	if err := p.w.greet(c, link, p); err != nil {
		_ = link.Close("greeting failed") // the error tells
		return nil, p.explain(c, err)
	}
	return link, p.w.adopt(p, link, false)
}

// lost says why the peer cannot be called any more, nil while it can.
func (p *peer) lost() error {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return p.gone
}

func (p *peer) current() (transport.Link, error) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if p.w.closed {
		return nil, ErrLeft
	}
	return p.link, p.gone
}

// adopt makes a greeted link the one for calls, and serves what the peer sends over it. With first it refuses a second one.
func (w *Worker) adopt(p *peer, link transport.Link, first bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		_ = link.Close("left") // too late
		return ErrLeft
	}
	if first && p.link != nil {
		return fmt.Errorf("%w: %s is linked already", ErrRankTaken, p.name)
	}
	p.link = link
	w.changedLocked()
	w.work.Go(func() { w.serveLink(p, link) })
	return nil
}

// serveLink handles the peer's streams until the link is gone, and then tells whom it concerns.
func (w *Worker) serveLink(p *peer, link transport.Link) {
	for {
		s, err := link.Accept(w.life)
		if err != nil {
			break
		}
		w.calls.crew.do(w, func() { w.serveStream(p, s) })
	}
	<-link.Done()
	if p.rank == w.rank {
		return
	}
	cause := link.Err()
	w.mu.Lock()
	expected := w.closed || p.leaving
	if p.gone == nil {
		p.gone = fmt.Errorf("%w: %s: %w", lossOf(cause), p.name, cause)
	}
	gone := p.gone
	w.changedLocked()
	w.mu.Unlock()
	if !expected {
		w.log.Warn("lost a worker", "worker", w.name, "peer", p.name, "err", cause)
	}
	w.refs.do(func(m *refs.Machine, now time.Time) { m.Lose(now, p.node) })
	w.passes.PeerLost(ctx.WorkerID(p.rank), gone)
}

// lossOf tells a peer that left from one that was lost.
func lossOf(cause error) error {
	if errors.Is(cause, transport.ErrPeerClosed) || errors.Is(cause, transport.ErrClosed) {
		return ErrPeerLeft
	}
	return ErrPeerLost
}

// others lists the peers that are linked, without this worker.
func (w *Worker) others() []*peer {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ps []*peer
	for _, p := range w.peers {
		if p.rank != w.rank && p.link != nil && p.gone == nil {
			ps = append(ps, p)
		}
	}
	return ps
}

// sayLeaving tells a peer that this worker has nothing more to ask of it. A peer that is gone needs no telling.
func (w *Worker) sayLeaving(c context.Context, p *peer) {
	if _, err := w.ask(c, p, kindLeaving, struct{}{}); err != nil {
		w.log.Debug("could not say goodbye", "worker", w.name, "peer", p.name, "err", err)
	}
}
