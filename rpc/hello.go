package rpc

import (
	"context"
	"fmt"

	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/transport"
)

// greet tells the worker at the other end of a new link who dialled, and hears whether it agrees.
func (w *Worker) greet(c context.Context, link transport.Link, p *peer) error {
	c, cancel := context.WithTimeout(c, helloTimeout)
	defer cancel()
	header, err := encode(helloHeader{Name: w.name, Rank: w.rank, World: w.world, To: p.name})
	if err != nil {
		return err
	}
	reply, err := exchange(c, link, &transport.Message{Kind: kindHello, Header: header}, nil)
	if err != nil {
		return ctx.AsTimeout(err)
	}
	defer reply.Release()
	return w.parseReply(reply, &replyHeader{})
}

// acceptLinks takes links until the worker ends. Each must greet before anything else is read from it.
func (w *Worker) acceptLinks() {
	for {
		link, err := w.listener.Accept(w.life)
		if err != nil {
			return
		}
		w.work.Go(func() {
			if err := w.welcome(link); err != nil {
				w.log.Warn("refused a link", "worker", w.name, "from", link.RemoteAddr(), "err", err)
				w.linger(link)
				_ = link.Close("refused") // the peer got the reason as its answer
			}
		})
	}
}

// linger gives a refused peer the time to read why, and to close the link itself: closing it here could overtake the answer.
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
	if m.Kind == kindStatus {
		return w.observed(link, s, m)
	}
	p, err := w.admit(m)
	if err == nil && p.rank != w.rank {
		err = w.adopt(p, link, true)
	}
	if serr := w.reply(s, &replyHeader{}, nil, err); serr == nil {
		_, _ = s.Recv(c, noTensors) // the peer's end, so that nothing is reset under it
	} else if err == nil {
		err = serr
	}
	if err != nil || p.rank != w.rank {
		return err
	}
	return w.adoptSelf(p, link)
}

// admit checks a greeting.
func (w *Worker) admit(m *transport.Message) (*peer, error) {
	var h helloHeader
	if m.Kind != kindHello {
		return nil, fmt.Errorf("%w: a link must begin with a greeting, not kind %d", ErrProtocol, m.Kind)
	}
	if err := decode(m.Header, &h); err != nil {
		return nil, err
	}
	switch {
	case h.World != w.world:
		return nil, fmt.Errorf("%w: %s was told %d, %s %d", ErrWorldSize, h.Name, h.World, w.name, w.world)
	case h.To != w.name:
		return nil, fmt.Errorf("%w: %s means to reach %s; this is %s", ErrRefused, h.Name, h.To, w.name)
	case h.Rank < 0 || h.Rank >= w.world:
		return nil, fmt.Errorf("%w: rank %d in a world of %d", ErrRefused, h.Rank, w.world)
	}
	p := w.peers[h.Rank]
	if p.name != h.Name {
		return nil, fmt.Errorf("%w: rank %d is %s, not %s", ErrRefused, h.Rank, p.name, h.Name)
	}
	return p, nil
}

// adoptSelf serves the far end of this worker's link to itself.
func (w *Worker) adoptSelf(p *peer, link transport.Link) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return ErrLeft
	}
	p.served = append(p.served, link)
	w.work.Go(func() { w.serveLink(p, link) })
	return nil
}
