package ctx

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weft-project/weft/autodiff"
)

// engine is the backward of one worker in one pass, as a state machine: events in, actions out. It
// does no I/O, runs nothing and knows no time. Every gradient it is given it either holds or hands
// out in an action; drop frees the rest. Each of the send functions that it is made with gets its
// gradients exactly once: the mode says only which those are.
type engine struct {
	task   *autodiff.Task
	sends  map[MessageID]*sendFunction // whose gradients have not come
	recvs  map[*autodiff.Node]*recvFunction
	begun  []*autodiff.Node // operations of groups to which no gradient comes here
	work   int              // actions handed out and not yet finished
	err    error
	closed bool
}

// action is one thing to do. Exactly one of node, leaf and recv is set.
type action struct {
	node  *autodiff.Node   // compute its gradients and report with ran
	leaf  *autodiff.Tensor // accumulate grads[0] and report with done
	recv  *recvFunction    // send the gradients to its worker and report with done
	grads []*autodiff.Tensor
}

// newEngine plans a backward over the roots and the send functions that take part.
func newEngine(roots []autodiff.Edge, sends map[MessageID]*sendFunction, recvs map[*autodiff.Node]*recvFunction, j *joint) *engine {
	sources := make([]*autodiff.Node, 0, len(sends))
	from := roots
	for _, id := range sortedIDs(sends) {
		sources = append(sources, sends[id].node)
		if j != nil {
			from = slices.Concat(from, sends[id].node.Next())
		}
	}
	begun := j.sources(from)
	return &engine{task: autodiff.NewTask(roots, append(sources, begun...)), sends: sends, recvs: recvs, begun: begun}
}

// start is the event that the roots' first gradients are there.
func (e *engine) start(roots []autodiff.Edge, grads []*autodiff.Tensor) {
	for i, r := range roots {
		e.verify(e.task.Deliver(r, grads[i]))
	}
	for _, n := range e.begun {
		e.verify(e.task.Start(n, make([]*autodiff.Tensor, len(n.Results()))))
	}
}

// arrived is the event that the gradients of a send function came. They are the engine's, also when
// it refuses them.
func (e *engine) arrived(id MessageID, grads []*autodiff.Tensor) error {
	s := e.sends[id]
	if s == nil {
		autodiff.Release(grads...)
		return fmt.Errorf("%w: %v; or its gradients came twice, or an earlier backward used its graph up", ErrUnknownMessage, id)
	}
	delete(e.sends, id)
	if e.err != nil || e.closed {
		autodiff.Release(grads...)
		return e.err
	}
	for i, g := range grads {
		if g != nil && i < len(s.devices) && g.Device() != s.devices[i] {
			autodiff.Release(grads...)
			err := fmt.Errorf("%w: gradient %d of %v lies on %v, its tensor on %v", ErrProtocol, i, id, g.Device(), s.devices[i])
			e.fail(err)
			return err
		}
	}
	err := e.task.Start(s.node, grads)
	e.verify(err)
	return err
}

// next hands out one action.
func (e *engine) next() (action, bool) {
	if e.err != nil {
		return action{}, false
	}
	n, grads, ok := e.task.Next()
	if !ok {
		return action{}, false
	}
	e.work++
	a := action{node: n, grads: grads}
	if leaf := n.Leaf(); leaf != nil {
		a = action{leaf: leaf, grads: grads}
	} else if r := e.recvs[n]; r != nil {
		a = action{recv: r, grads: grads}
	}
	return a, true
}

// ran is the event that a node's gradients were computed; they are the engine's.
func (e *engine) ran(n *autodiff.Node, outs []*autodiff.Tensor, err error) {
	e.work--
	if err != nil || e.err != nil {
		autodiff.Release(outs...)
		e.verify(err)
		return
	}
	e.verify(e.task.Complete(n, outs))
}

// done is the event that a leaf took its gradient, or that a peer answered.
func (e *engine) done(err error) {
	e.work--
	e.verify(err)
}

// fail is the event that the backward cannot go on; the first cause is kept.
func (e *engine) fail(err error) { e.verify(err) }

func (e *engine) verify(err error) {
	if err != nil && e.err == nil {
		e.err = err
	}
}

// finished says that nothing is left to do or to wait for. After a failure only what is under way
// is waited for.
func (e *engine) finished() bool {
	return e.work == 0 && (e.err != nil || e.task.Left() == 0)
}

// drop frees what the engine holds.
func (e *engine) drop() {
	e.closed = true
	e.task.Free()
}

// stalled says which send functions no gradient came for.
func (e *engine) stalled(m Mode) error {
	if len(e.sends) == 0 {
		return nil
	}
	var who []string
	for _, id := range sortedIDs(e.sends) {
		who = append(who, e.sends[id].node.Name())
	}
	if m == Fast {
		return fmt.Errorf("%w for %s; FAST mode needs every remote result to be used by the loss: use it, make the call under ctx.NoGrad, or choose SMART", ErrStalled, strings.Join(who, ", "))
	}
	return fmt.Errorf("%w for %s", ErrStalled, strings.Join(who, ", "))
}

func sortedIDs(sends map[MessageID]*sendFunction) []MessageID {
	return slices.Sorted(maps.Keys(sends))
}

// withReason keeps a cause and adds what waited, where there is something to add.
func withReason(cause, more error) error {
	if more == nil {
		return cause
	}
	return errors.Join(cause, more)
}
