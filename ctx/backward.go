package ctx

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weft-project/weft/autodiff"
)

// backward is the shell around an engine: it computes, sends, and waits. One goroutine drives it (Backward's caller at the
// root, the handler of the first gradient message elsewhere); others bring events.
type backward struct {
	pass   *Pass
	id     BackwardID
	retain bool
	grads  autodiff.Gradients // of the driving goroutine
	sends  []MessageID        // those that take part

	wake chan struct{} // an event came

	mu  sync.Mutex
	eng *engine
}

// Backward computes the gradients of every parameter that the roots depend on, on all workers of the pass that c
// carries. The roots must be scalars of this worker. Gradients are added to those that the pass has.
func Backward(c context.Context, roots ...*autodiff.Tensor) error {
	return BackwardWith(c, autodiff.Options{}, roots...)
}

// BackwardWith is Backward with options.
func BackwardWith(c context.Context, o autodiff.Options, roots ...*autodiff.Tensor) error {
	p, ok := From(c)
	if !ok {
		return ErrNoPass
	}
	for _, r := range roots {
		if owner := r.Owner(); owner != nil && owner != p.arena {
			return p.err("backward", fmt.Errorf("%w: %v is not of this one", autodiff.ErrMixedPasses, r))
		}
	}
	edges, first, err := autodiff.Roots(o, roots)
	if err != nil {
		return p.err("backward", err)
	}
	b, _, err := p.join(BackwardID(p.ct.nextID()), o.RetainGraph, edges)
	if err != nil {
		autodiff.Release(first...)
		return p.err("backward", err)
	}
	if _, bounded := c.Deadline(); !bounded && p.ct.wait > 0 {
		var cancel context.CancelFunc
		c, cancel = context.WithTimeout(c, p.ct.wait)
		defer cancel()
	}
	b.mu.Lock() // the pass may be left meanwhile
	b.eng.start(edges, first)
	b.mu.Unlock()
	return p.err("backward", b.drive(c))
}

// HandleGradients takes the gradients of a send function from the worker that got the tensors. The message's tensors become the
// pass's. The first message of a backward is answered when this worker's whole part is done, later ones at once.
func (ct *Container) HandleGradients(c context.Context, from WorkerID, m *GradientMessage) error {
	p, err := ct.find(m.Pass, "gradients")
	if err != nil {
		autodiff.Release(m.Grads...)
		return err
	}
	err = p.expects(m.Message, from)
	var b *backward
	var first bool
	if err == nil {
		b, first, err = p.join(m.Backward, m.Retain, nil)
	}
	if err != nil {
		autodiff.Release(m.Grads...)
		return p.err("gradients", err)
	}
	b.mu.Lock()
	err = b.eng.arrived(m.Message, m.Grads)
	if first && err != nil { // nothing that would follow can be right
		b.eng.fail(err)
	}
	b.mu.Unlock()
	b.poke()
	if first {
		c, cancel := sooner(c)
		defer cancel()
		return p.err("gradients", b.drive(c))
	}
	return p.err("gradients", err)
}

// sooner gives a participant nine tenths of the time that is left, so that what it waited for reaches the root before the
// root itself runs out of time.
func sooner(c context.Context) (context.Context, context.CancelFunc) {
	if d, ok := c.Deadline(); ok {
		return context.WithTimeout(c, time.Until(d)/10*9)
	}
	return context.WithCancel(c)
}

// expects refuses gradients from a worker that did not get the tensors.
func (p *Pass) expects(id MessageID, from WorkerID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.sends[id]; s != nil && s.to != from {
		return fmt.Errorf("%w: gradients of %v come from %s", ErrProtocol, id, p.ct.links.Name(from))
	}
	return nil
}

// join finds a backward that is under way here, or begins it over the roots and all send functions that the pass has now. The
// first to come must drive it.
func (p *Pass) join(id BackwardID, retain bool, roots []autodiff.Edge) (b *backward, first bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b := p.backwards[id]; b != nil {
		return b, false, nil
	}
	switch {
	case p.sends == nil:
		return nil, false, ErrLeft
	case slices.Contains(p.ended, id):
		return nil, false, fmt.Errorf("%w: backward %v is over here", ErrUnknownMessage, id)
	}
	for _, s := range p.sends {
		if gone := p.lost[s.to]; gone != nil { // its gradients will never come
			return nil, false, gone
		}
	}
	b = &backward{pass: p, id: id, retain: retain, wake: make(chan struct{}, 1), sends: sortedIDs(p.sends)}
	b.eng = newEngine(roots, maps.Clone(p.sends), maps.Clone(p.recvs))
	p.backwards[id] = b
	return b, true, nil
}

// maxEnded is how many finished backwards a pass remembers.
const maxEnded = 64

// finish takes the backward out of the pass. Send functions whose graph is used up are forgotten: no later backward can use them.
func (b *backward) finish(ok bool) {
	p := b.pass
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.backwards, b.id)
	p.ended = append(p.ended, b.id)
	if len(p.ended) > maxEnded {
		p.ended = p.ended[1:]
	}
	if ok && !b.retain {
		for _, id := range b.sends {
			delete(p.sends, id)
		}
	}
}

// abort ends the backward from outside.
func (b *backward) abort(cause error) {
	b.mu.Lock()
	b.eng.fail(cause)
	b.mu.Unlock()
	b.poke()
}

func (b *backward) poke() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// drive runs the engine until it is finished.
func (b *backward) drive(c context.Context) (err error) {
	caller := c
	c, cancel := context.WithCancelCause(c)
	defer cancel(nil)
	var out sync.WaitGroup
	for {
		a, ok, over, failed := b.poll()
		switch {
		case ok:
			b.do(c, &out, a)
			continue
		case failed != nil:
			cancel(failed) // what is on the wire ends now
		}
		if over {
			break
		}
		if failed != nil {
			<-b.wake
			continue
		}
		select {
		case <-b.wake:
		case <-c.Done():
			b.mu.Lock()
			b.eng.fail(AsTimeout(context.Cause(c)))
			b.mu.Unlock()
		}
	}
	out.Wait()
	b.mu.Lock()
	b.eng.drop()
	if err = b.eng.err; err != nil && errors.Is(caller.Err(), context.DeadlineExceeded) {
		err = withReason(err, b.eng.stalled())
	}
	b.mu.Unlock()
	if err == nil {
		err = b.pass.merge(&b.grads)
	} else {
		b.grads.Free()
	}
	b.finish(err == nil)
	return err
}

func (b *backward) poll() (a action, ok, over bool, failed error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a, ok = b.eng.next()
	return a, ok, b.eng.finished(), b.eng.err
}

// do performs one action. Gradients leave on goroutines of their own, so that communication overlaps computation.
func (b *backward) do(c context.Context, out *sync.WaitGroup, a action) {
	switch {
	case a.recv != nil:
		out.Go(func() {
			err := b.send(c, a)
			autodiff.Release(a.grads...)
			b.report(err)
			b.poke()
		})
	case a.leaf != nil:
		var err error
		if a.grads[0] != nil {
			err = b.grads.Accumulate(a.leaf, a.grads[0])
		}
		b.report(err)
	default:
		outs, err := a.node.Pull(a.grads, b.retain)
		autodiff.Release(a.grads...)
		b.mu.Lock()
		b.eng.ran(a.node, outs, err)
		b.mu.Unlock()
	}
}

func (b *backward) report(err error) {
	b.mu.Lock()
	b.eng.done(err)
	b.mu.Unlock()
}

func (b *backward) send(c context.Context, a action) error {
	return b.pass.ct.links.SendGradients(c, a.recv.from, &GradientMessage{
		Pass: b.pass.id, Message: a.recv.id, Backward: b.id, Retain: b.retain,
		Grads: a.grads, Targets: a.recv.origins,
	})
}
