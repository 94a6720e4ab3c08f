package membership

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/rpc/internal/refs"
	"github.com/weft-project/weft/rpc/internal/roster"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/transport"
)

// Peer is another worker, or this one as the target of its own calls.
type Peer struct {
	of    *Members
	Name  string
	Rank  int
	Node  refs.Node // for references
	Addr  string
	There device.Map // mine → the peer's, for what leaves in calls
	Back  device.Map // mine → the peer's, for what leaves in responses to its calls

	// guarded by the lock of the members it is of
	link    transport.Link   // nil until linked
	served  []transport.Link // the other ends of links to oneself
	gone    error            // why the peer cannot be called any more
	leaving bool             // the peer has come to leave
	dial    *attempt         // to link with it, under way
	outbox  []roster.News    // to be told
	telling bool             // somebody tells it
}

// attempt is a dial, for all who wait for it.
type attempt struct {
	done   chan struct{}
	err    error // set before done is closed
	cancel context.CancelCauseFunc
	short  *time.Timer // ends it early; nil where others have not lost the peer
}

// doubtTimeout is how long a dial of a worker that others have lost waits for each answer, from
// when this one heard of it: the silence of which links are lost, and the time that a link which
// was answered may take to join its lanes, as behind a firewall that drops them.
const doubtTimeout = 2400*time.Millisecond + 2*time.Second

var errDoubted = fmt.Errorf("no answer within %v: %w", doubtTimeout, ctx.ErrTimeout)

func (p *Peer) links() []transport.Link {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	var ls []transport.Link
	if p.link != nil {
		ls = append(ls, p.link)
	}
	return append(ls, p.served...)
}

// Connection is the link for calls. One that is not there yet is made.
func (p *Peer) Connection(c context.Context) (transport.Link, error) {
	for range maxTries {
		p.of.mu.Lock()
		if p.of.closed || p.link != nil || p.gone != nil {
			defer p.of.mu.Unlock()
			if p.of.closed {
				return nil, ErrLeft
			}
			return p.link, p.gone
		}
		a := p.attemptLocked()
		p.of.mu.Unlock()
		select {
		case <-a.done:
		case <-c.Done():
			return nil, ctx.AsTimeout(context.Cause(c))
		}
		if a.err != nil {
			return nil, a.err
		}
	}
	return nil, fmt.Errorf("%w: %s: its links do not last", ctx.ErrPeerLost, p.Name)
}

const maxTries = 3

// DialTimeout bounds a dial and its greeting. The network itself gives up earlier where nobody
// answers.
const DialTimeout = 2 * HelloTimeout

// attemptLocked dials, where nobody does yet. The caller holds ms.mu, and the worker is not closed.
func (p *Peer) attemptLocked() *attempt {
	if p.dial == nil {
		a := &attempt{done: make(chan struct{})}
		var c context.Context
		c, a.cancel = context.WithCancelCause(p.of.life)
		p.dial = a
		p.of.work.Go(func() {
			err := p.connect(c)
			for err != nil && p.of.patientWith(p, err) {
				err = p.connect(c)
			}
			if cause := context.Cause(c); err != nil && errors.Is(cause, errDoubted) && !answered(err) {
				err = cause
			}
			p.of.Event(func(r *roster.Roster) {
				a.err, p.dial = p.unlinked(err), nil
				switch {
				case err == nil || p.of.life.Err() != nil || p.link != nil:
				case errors.Is(err, transport.ErrBusy):
					r.DialBusy(p.Rank, p.Node.Epoch, err)
				case errors.Is(err, ErrRefused):
					r.DialRefused(p.Rank, p.Node.Epoch, err)
				default:
					r.DialFailed(p.Rank, p.Node.Epoch, err)
				}
				p.of.changedLocked()
				if a.short != nil {
					a.short.Stop()
				}
			})
			a.cancel(nil)
			close(a.done)
		})
	}
	if a := p.dial; a.short == nil && p.of.roster.Doubted(p.Rank, p.Node.Epoch) {
		a.short = time.AfterFunc(doubtTimeout, func() { a.cancel(errDoubted) })
	}
	return p.dial
}

// answered says that a dial failed by what somebody there has said.
func answered(err error) bool {
	return errors.Is(err, ErrRefused) || errors.Is(err, transport.ErrBusy)
}

// patientWith says whether to dial once more. While a static world joins, who does not answer and
// was lost by nobody is rather busy than gone: a machine on which many join is.
func (ms *Members) patientWith(p *Peer, err error) bool {
	if errors.Is(err, transport.ErrIdentity) || errors.Is(err, ErrRefused) {
		return false
	}
	ms.mu.Lock()
	again := time.Now().Before(ms.patience) && p.link == nil && p.gone == nil && !ms.closed && !ms.roster.Doubted(p.Rank, p.Node.Epoch)
	ms.mu.Unlock()
	return again && pause(ms.life, pollEvery) == nil
}

// unlinked is what the failure of a dial means to calls. The caller holds that lock.
func (p *Peer) unlinked(err error) error {
	switch {
	case err == nil || p.link != nil:
		return nil
	case p.of.closed:
		return ErrLeft
	case p.gone != nil:
		return p.gone
	case errors.Is(err, transport.ErrIdentity), errors.Is(err, ErrRefused):
		return err
	case errors.Is(err, transport.ErrBusy):
		return fmt.Errorf("%w: %s: %w", ErrBusy, p.Name, err)
	}
	return fmt.Errorf("%w: %s: it does not answer: %w", ctx.ErrPeerLost, p.Name, ctx.AsTimeout(err))
}

// connect makes the link. Where both ends dial at once, the link of the lower rank's stays.
func (p *Peer) connect(c context.Context) error {
	ms := p.of
	c, cancel := context.WithTimeout(c, DialTimeout)
	defer cancel()
	addr := p.Addr
	if p.Rank == ms.Me.Rank {
		addr = ms.Listener.Addr()
	}
	link, err := ms.net.Dial(c, addr)
	if err != nil {
		return err
	}
	p.heard()
	return ms.introduce(c, p, link)
}

// heard gives a peer that has answered, and that others have lost, the same time again.
func (p *Peer) heard() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if a := p.dial; a != nil && a.short != nil {
		a.short.Reset(doubtTimeout)
	}
}

// introduce greets the peer at the other end of a new link, and puts the link to use.
func (ms *Members) introduce(c context.Context, p *Peer, link transport.Link) error {
	var answer wire.HelloAnswer
	err := link.Vouches(p.Name, p.Rank)
	if err == nil {
		answer, err = ms.greet(c, link, p)
	}
	if err == nil && !answer.Crossed {
		err = ms.adopt(p, link, answer.Sync)
	}
	if err != nil || answer.Crossed {
		ms.giveUp(link)
	}
	if err == nil && answer.Crossed {
		if err = ms.await(c, func() bool { return p.link != nil || p.gone != nil || ms.closed }); err != nil {
			err = fmt.Errorf("%s has said that it dials, and did not: %w", p.Name, err)
		}
	}
	return err
}

// notWanted is why a link is closed whose greeting was not answered in time, or did not please: the
// other end may have put it to use.
const notWanted = "not wanted"

// giveUp closes a link that never became the one for calls.
func (ms *Members) giveUp(link transport.Link) {
	reason := notWanted
	if ms.life.Err() != nil {
		reason = "left"
	}
	_ = link.Close(reason) // an error tells, where there is one
}

// givenUp says that the other end has closed a link that it never used.
func givenUp(cause error) bool {
	var e *transport.Error
	return errors.Is(cause, transport.ErrPeerClosed) && errors.As(cause, &e) && e.Reason == notWanted
}

// Lost says why the peer cannot be called any more, nil while it can.
func (p *Peer) Lost() error {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	return p.gone
}

// adopt makes a greeted link the one for calls, and serves what the peer sends over it. With sync
// the peer is told of everybody.
func (ms *Members) adopt(p *Peer, link transport.Link, sync bool) (err error) {
	if p.Rank == ms.Me.Rank {
		return ms.adoptSelf(p, link)
	}
	ms.mu.Lock()
	var over []*Peer
	switch {
	case ms.closed:
		err = ErrLeft
	case p.gone != nil:
		err = p.gone
	case p.link != nil:
		err = fmt.Errorf("%w: %s is linked already", ErrRefused, p.Name)
	default:
		if err = ms.roster.LinkUp(p.Rank, p.Node.Epoch); err == nil {
			p.link = link
			ms.changedLocked()
			if sync {
				ms.tellLocked(p, ms.roster.All()...)
			}
			ms.work.Go(func() { ms.serveLink(p, link) })
		}
		over = ms.applyLocked()
	}
	ms.mu.Unlock()
	ms.mourn(over)
	return err
}

// adoptSelf takes an end of this worker's link to itself: the first is for calls, the other serves
// them.
func (ms *Members) adoptSelf(p *Peer, link transport.Link) error {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if ms.closed {
		return ErrLeft
	}
	if p.link == nil {
		p.link = link
	} else {
		p.served = append(p.served, link)
	}
	ms.changedLocked()
	ms.work.Go(func() { ms.serveLink(p, link) })
	return nil
}

// serveLink handles the peer's streams until the link is gone.
func (ms *Members) serveLink(p *Peer, link transport.Link) {
	link.Serve(ms.life, func(s transport.Stream, kind uint8, whole bool) { ms.shell.Serve(p, s, kind, whole) })
	<-link.Done()
	if p.Rank == ms.Me.Rank {
		return
	}
	cause := link.Err()
	left := errors.Is(cause, transport.ErrPeerClosed) || errors.Is(cause, transport.ErrClosed)
	ms.Event(func(r *roster.Roster) {
		if givenUp(cause) && p.gone == nil {
			p.link = nil
			r.Unlinked(p.Rank, p.Node.Epoch)
			return
		}
		r.LinkDown(p.Rank, p.Node.Epoch, left, cause)
	})
	ms.mu.Lock()
	graves := ms.graves
	ms.graves = nil
	ms.mu.Unlock()
	for _, m := range graves { // a call may have failed of this loss, and its caller have closed the worker, before it was known here
		ms.Registry.bury(m, ms.Me.Name)
	}
}

// Target is where a tensor for this peer lands. The error for a device without an entry names both
// maps: which of them was to be used, and which may have been meant.
func (p *Peer) Target(by device.Map, src device.ID) (device.ID, error) {
	dst, err := by.Target(src)
	if err != nil {
		err = fmt.Errorf("%w (calls from %s to %s use %v, answers to calls from %s the reverse of its map, %v)", err, p.of.Me.Name, p.Name, p.There, p.Name, p.Back)
	}
	return dst, err
}

// Explain turns what a stream or link says into what it means for the call: the deadline, the
// cancellation, or the peer.
func (p *Peer) Explain(c context.Context, err error) error {
	if cause := context.Cause(c); cause != nil {
		return ctx.AsTimeout(cause)
	}
	var loss error
	switch {
	case errors.Is(err, transport.ErrPeerLost):
		loss = ctx.ErrPeerLost
	case errors.Is(err, transport.ErrPeerClosed):
		loss = ErrPeerLeft
	case errors.Is(err, transport.ErrClosed):
		loss = ErrLeft
	default:
		return ctx.AsTimeout(err)
	}
	return fmt.Errorf("%w: %s: %w", loss, p.Name, err)
}
