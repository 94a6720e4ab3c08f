package ctx

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weft-project/weft/autodiff"
)

// backward is the shell around an engine: it computes, sends, and waits. One goroutine drives it
// (Backward's caller at the root, the handler of the first gradient message elsewhere); others
// bring events.
type backward struct {
	pass            *Pass
	id              BackwardID
	mode            Mode
	retain, anomaly bool
	plan            Plan   // all that take part, on all workers; nil in FAST mode
	joint           *joint // operations of groups that take part
	grads           autodiff.Gradients
	sends           []MessageID // those of this worker

	wake chan struct{} // an event came
	line *timeline     // nil where nobody observes; drive sets it

	mu     sync.Mutex
	eng    *engine
	failed *Failure
	heard  bool       // it began elsewhere
	over   bool       // it has gone well here
	has    []WorkerID // who sent gradients, and hence has the plan
}

// Backward computes the gradients of every parameter that the roots depend on, on all workers of
// the pass that c carries. The roots must be scalars of this worker. Gradients are added to those
// that the pass has.
func Backward(c context.Context, roots ...*autodiff.Tensor) error {
	return BackwardWith(c, Options{}, roots...)
}

// BackwardWith is Backward with options. When it fails, it fails on all workers with the same
// [Failure], and adds nothing to the pass; with RetainGraph it may be tried again. If it is another
// worker that fails, after this one's part has gone well, then Backward may have returned nil: the
// pass's next Gradients, and its next Backward, return the failure.
func BackwardWith(c context.Context, o Options, roots ...*autodiff.Tensor) error {
	p, ok := From(c)
	if !ok {
		return ErrNoPass
	}
	if _, bounded := c.Deadline(); !bounded && p.ct.wait > 0 {
		var cancel context.CancelFunc
		c, cancel = context.WithTimeout(c, p.ct.wait)
		defer cancel()
	}
	edges, first, err := p.roots(c, o, roots)
	if err != nil {
		p.abandon(c, err)
		return p.err("backward", err)
	}
	b, err := p.newBackward(c, o, edges)
	if err != nil {
		autodiff.Release(first...)
		return p.err("backward", err)
	}
	b.mu.Lock() // the pass may be left meanwhile
	b.eng.start(edges, first)
	b.mu.Unlock()
	b.joint.watch(b)
	return p.err("backward", b.drive(c))
}

// roots checks the roots, and gives their edges and first gradients.
func (p *Pass) roots(c context.Context, o Options, roots []*autodiff.Tensor) ([]autodiff.Edge, []*autodiff.Tensor, error) {
	if err := context.Cause(c); err != nil {
		return nil, nil, AsTimeout(err)
	}
	if err := p.arena.Accepts("Backward", slices.Concat(roots, o.Grads)...); err != nil {
		return nil, nil, err
	}
	return autodiff.Roots(autodiff.Options{RetainGraph: o.RetainGraph, Grads: o.Grads}, roots)
}

// newBackward makes the backward of a root.
func (p *Pass) newBackward(c context.Context, o Options, roots []autodiff.Edge) (b *backward, err error) {
	j, err := p.takePart(c, o.Mode, roots)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = j.finish(err) // it has failed
		}
	}()
	reached := p.reached(append(j.edges(), roots...))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left {
		return nil, ErrLeft
	}
	if f := p.revoked; f != nil && !p.told && f.Backward.creator() == p.ct.me { // it was said to have gone well
		p.told = true
		return nil, f
	}
	b = &backward{pass: p, id: BackwardID(p.ct.nextID()), mode: o.Mode, retain: o.RetainGraph, anomaly: o.Anomaly, joint: j}
	if o.Mode == Smart {
		if b.plan, err = p.past.plan(reached); err != nil {
			return nil, err
		}
	}
	if err := p.addLocked(b, roots); err != nil {
		return nil, b.failure(err)
	}
	return b, nil
}

// HandleGradients takes the gradients of a send function from the worker that got the tensors. The
// message's tensors become the pass's. The first message of a backward is answered when this
// worker's whole part is done, later ones at once. A backward does not end because c does, except
// at its deadline: who gives it up says so to all.
func (ct *Container) HandleGradients(c context.Context, from WorkerID, m *GradientMessage) error {
	p, err := ct.find(m.Pass, "gradients")
	if err != nil {
		autodiff.Release(m.Grads...)
		return err
	}
	b, first, err := p.join(from, m)
	if err != nil {
		autodiff.Release(m.Grads...)
		if b != nil {
			err = b.refuse(err)
		}
		return p.err("gradients", err)
	}
	b.mu.Lock()
	err = b.eng.arrived(m.Message, m.Grads)
	if first && err != nil { // nothing that would follow can be right
		b.eng.fail(err)
	}
	if f := b.failureLocked(); err != nil && f != nil {
		err = f
	}
	b.mu.Unlock()
	b.poke()
	if first {
		c, cancel := b.patience(c)
		defer cancel()
		return p.err("gradients", b.drive(c))
	}
	return p.err("gradients", err)
}

// patience is the context of a participant: it has the deadline of the message that began it. In
// FAST mode a participant takes nine tenths of it, so that what it waited for reaches the root
// before the root itself runs out of time.
func (b *backward) patience(c context.Context) (context.Context, context.CancelFunc) {
	d, ok := c.Deadline()
	c = context.WithoutCancel(c)
	switch {
	case !ok:
		return context.WithCancel(c)
	case b.mode == Fast:
		return context.WithTimeout(c, time.Until(d)/10*9)
	}
	return context.WithDeadline(c, d)
}

// join finds a backward that is under way here, or begins this worker's part of it. The first to
// come must drive it. With an error it gives the backward where that cannot begin, and nil where
// only the message is wrong.
func (p *Pass) join(from WorkerID, m *GradientMessage) (b *backward, first bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.sends[m.Message]; s != nil {
		if s.to != from {
			return nil, false, fmt.Errorf("%w: gradients of %v come from %s", ErrProtocol, m.Message, p.ct.links.Name(from))
		}
		for _, g := range m.Grads {
			s.back += int64(g.Bytes())
		}
	}
	if b = p.backwards[m.Backward]; b == nil {
		switch over := p.endedAs(m.Backward); {
		case p.left:
			return nil, false, ErrLeft
		case over != nil && over.failure != nil:
			return nil, false, over.failure
		case over != nil:
			return nil, false, fmt.Errorf("%w: backward %v is over here", ErrUnknownMessage, m.Backward)
		case m.Mode == Smart && m.Plan == nil:
			return nil, false, fmt.Errorf("%w: the first gradients of backward %v come without its plan", ErrProtocol, m.Backward)
		}
		b = &backward{pass: p, id: m.Backward, mode: m.Mode, plan: m.Plan, retain: m.Retain, anomaly: m.Anomaly}
		if err := p.addLocked(b, nil); err != nil {
			return b, false, err
		}
		first = true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Contains(b.has, from) {
		b.has = append(b.has, from)
	}
	return b, first, nil
}

// addLocked gives a backward its engine over the roots and the send functions that take part here.
// The caller holds p.mu.
func (p *Pass) addLocked(b *backward, roots []autodiff.Edge) error {
	b.wake, b.has = make(chan struct{}, 1), []WorkerID{b.id.creator()}
	for _, w := range b.plan.workers() {
		if gone := p.lost[w]; gone != nil {
			return gone
		}
	}
	var sends map[MessageID]*sendFunction
	var recvs map[*autodiff.Node]*recvFunction
	if b.mode == Fast {
		sends, recvs = maps.Clone(p.sends), maps.Clone(p.recvs)
	}
	for _, id := range b.plan.of(p.ct.me) {
		s := p.sends[id]
		if s == nil {
			return fmt.Errorf("%w: that of message %v", autodiff.ErrGraphFreed, id)
		}
		put(&sends, id, s)
	}
	for _, id := range b.plan {
		if r := p.arrived[id]; r != nil {
			put(&recvs, r.node, r)
		}
	}
	for _, s := range sends {
		if gone := p.lost[s.to]; gone != nil { // its gradients will never come
			return gone
		}
	}
	p.shown.began(roots)
	p.revoked, p.told = nil, false
	b.sends = sortedIDs(sends)
	b.eng = newEngine(roots, sends, recvs, b.joint)
	put(&p.backwards, b.id, b)
	return nil
}
