package ctx

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/weft-project/weft/autodiff"
)

// drive runs the engine until it is finished.
func (b *backward) drive(c context.Context) error {
	c, cancel := context.WithCancelCause(c)
	defer cancel(nil)
	c = b.observe(c)
	var out sync.WaitGroup
	told := false
	for {
		if !told && c.Err() != nil { // also where there is always something to do
			b.abort(AsTimeout(context.Cause(c)))
		}
		a, ok, over, failed := b.poll()
		if ok {
			b.perform(c, &out, a)
			continue
		}
		if failed != nil && !told {
			told = true
			b.announce(failed)
			cancel(failed) // what is on the wire ends now
		}
		if over {
			break
		}
		b.line.work(-1)
		if failed != nil {
			<-b.wake
		} else {
			select {
			case <-b.wake:
			case <-c.Done(): // seen above
			}
		}
		b.line.work(1)
	}
	out.Wait()
	err := b.leavePass()
	b.line.seal(err)
	return err
}

// leavePass takes the backward out of the pass, with what it found.
func (b *backward) leavePass() error {
	b.mu.Lock()
	b.eng.drop()
	f := b.failureLocked()
	b.mu.Unlock()
	var err error
	if f != nil {
		_ = b.joint.finish(f) // it has failed
	} else if err = b.joint.finish(nil); err == nil {
		err = b.pass.conclude(b)
	}
	if f == nil {
		if err == nil {
			return nil
		}
		b.mu.Lock()
		b.eng.fail(err)
		f = b.failureLocked()
		b.mu.Unlock()
		b.announce(f)
	}
	b.grads.Free()
	b.pass.forget(b, f)
	return f
}

func (b *backward) poll() (a action, ok, over bool, failed *Failure) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a, ok = b.eng.next()
	return a, ok, b.eng.finished(), b.failureLocked()
}

// perform performs one action. Gradients leave on goroutines of their own, so that communication
// overlaps computation; so do large nodes that are not alone.
func (b *backward) perform(c context.Context, out *sync.WaitGroup, a action) {
	if a.recv != nil { // before the backward can count as done here
		if err := a.recv.node.RunHooks(a.grads); err != nil {
			autodiff.Release(a.grads...)
			b.report(err)
			return
		}
	}
	switch {
	case a.recv != nil && a.recv.from == b.id.creator() && b.pass.ct.begin():
		go func() { // the root knows by itself what it waits for: nobody needs its answer
			defer b.pass.ct.done()
			c, cancel := b.alone(c)
			defer cancel()
			if err := b.send(c, a); err != nil {
				b.late(err)
			}
		}()
		b.report(nil)
	case a.recv != nil:
		out.Go(func() {
			b.report(b.send(c, a))
			b.poke()
		})
	case b.joint.has(a.node):
		out.Go(func() { // which waits for the other members
			b.computeGradients(c, a)
			b.poke()
		})
	case a.leaf == nil && b.beside(a.node):
		b.line.work(1)
		out.Go(func() {
			b.computeGradients(c, a)
			b.line.work(-1)
			b.poke()
		})
	default:
		b.computeGradients(c, a)
	}
}

// alone is a context that ends at the deadline, and when the worker gives up what nobody waits for,
// but not with the backward.
func (b *backward) alone(c context.Context) (context.Context, context.CancelFunc) {
	d, bounded := c.Deadline()
	c, cancel := context.WithCancel(context.WithoutCancel(c))
	stop := context.AfterFunc(b.pass.ct.cleanCtx, cancel)
	end := func() { stop(); cancel() }
	if !bounded {
		return c, end
	}
	c, over := context.WithDeadline(c, d)
	return c, func() { over(); end() }
}

// heavy is from how many bytes of results on a node is worth a goroutine.
const heavy = 64 << 10

// beside says that a node should run beside others.
func (b *backward) beside(n *autodiff.Node) bool {
	bytes := 0
	for _, t := range n.Results() {
		bytes += t.Bytes()
	}
	if bytes < heavy {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.eng.task.Ready() > 0
}

// computeGradients computes the gradients of a node's inputs, or accumulates a leaf's.
func (b *backward) computeGradients(c context.Context, a action) {
	if a.leaf != nil {
		var err error
		if a.grads[0] != nil {
			err = b.grads.AccumulateWith(a.leaf, a.grads[0], autodiff.Pull{Anomaly: b.anomaly})
		}
		b.report(err)
		return
	}
	var outs []*autodiff.Tensor
	var err error
	if !b.joint.has(a.node) || b.joint.takesPart(a.node) { // else nobody wants its gradients
		outs, err = b.pull(c, a.node, a.grads)
	}
	autodiff.Release(a.grads...)
	b.mu.Lock()
	b.eng.ran(a.node, outs, err)
	b.mu.Unlock()
}

func (b *backward) report(err error) {
	b.mu.Lock()
	b.eng.done(err)
	b.mu.Unlock()
}

// send brings gradients to the worker whose tensors they are of, and releases them.
func (b *backward) send(c context.Context, a action) error {
	defer autodiff.Release(a.grads...)
	m := &GradientMessage{
		Pass: b.pass.id, Message: a.recv.id, Backward: b.id, Mode: b.mode, Retain: b.retain, Anomaly: b.anomaly,
		Grads: a.grads, Targets: a.recv.origins,
	}
	b.mu.Lock()
	if !slices.Contains(b.has, a.recv.from) {
		m.Plan = b.plan
	}
	b.mu.Unlock()
	err := b.pass.ct.links.SendGradients(c, a.recv.from, m)
	if told := (*Failure)(nil); errors.Is(err, ErrPeerLost) && !errors.As(err, &told) {
		return &EndError{b.pass.ct.links.Name(a.recv.from), err}
	}
	return err
}

func (b *backward) poke() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}
