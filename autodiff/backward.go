package autodiff

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/weft-project/weft/device"
)

// Options of a backward. The zero value frees the saved values as it goes and starts from scalar
// roots with gradient 1.
type Options struct {
	RetainGraph bool      // keep the saved values for another backward
	Anomaly     bool      // fail with an AnomalyError where a gradient becomes NaN or infinite
	Grads       []*Tensor // gradients of the roots, one each; nil entries mean 1 and need a scalar root
	// Take is given the gradient of each leaf as soon as it is complete and the leaf's hooks have
	// run, and must Release it: the backward keeps no gradient then, so that who takes it may have
	// its memory for himself. An error ends the backward.
	Take func(leaf, grad *Tensor) error
}

// Pull says how nodes are run.
type Pull struct {
	Retain  bool // the saved values stay for another backward
	Anomaly bool // look for NaN and infinity in what the node makes
	// Shared runs a node that [NewShared] made; nil where that cannot be.
	Shared func(n *Node, grads []*Tensor) ([]*Tensor, error)
}

// pull is how these options run nodes.
func (o Options) pull() Pull { return Pull{Retain: o.RetainGraph, Anomaly: o.Anomaly} }

// Roots checks the roots of a backward and gives their edges and first gradients, which the caller
// must deliver or free.
func Roots(o Options, roots []*Tensor) ([]Edge, []*Tensor, error) {
	if len(roots) == 0 {
		return nil, nil, opError("Backward", ErrNoRoots)
	}
	if len(o.Grads) > 0 && len(o.Grads) != len(roots) {
		return nil, nil, opError("Backward", fmt.Errorf("%w: %d output gradients for %d roots", ErrGradient, len(o.Grads), len(roots)))
	}
	if _, err := ownerOf(slices.Concat(roots, o.Grads)); err != nil {
		return nil, nil, opError("Backward", err)
	}
	edges, first := make([]Edge, 0, len(roots)), make([]*Tensor, 0, len(roots))
	for i, r := range roots {
		g, err := rootGradient(o, i, r)
		if err != nil {
			freeAll(first)
			return nil, nil, opError("Backward", fmt.Errorf("root %d: %w", i, err))
		}
		edges, first = append(edges, r.edge), append(first, g)
	}
	return edges, first, nil
}

// errNoGrad says of which tensor no gradient is asked, and what to do.
func errNoGrad(t *Tensor) error {
	return fmt.Errorf("%w on %v: nothing that it was computed from requires a gradient, or it was computed under NoGrad; "+
		"call RequireGrad on the parameters before they are used", ErrNoGrad, t)
}

func rootGradient(o Options, i int, r *Tensor) (*Tensor, error) {
	if err := r.Err(); err != nil {
		return nil, err
	}
	if r.owner != nil && r.owner.isFreed() {
		return nil, r.errFreed()
	}
	if !r.requiresGrad {
		return nil, errNoGrad(r)
	}
	if i >= len(o.Grads) || o.Grads[i] == nil {
		if r.typ.Shape.Elems() != 1 {
			return nil, fmt.Errorf("%v %w", *r.typ, ErrNotScalar)
		}
		return oneLike(r)
	}
	g := o.Grads[i]
	if err := g.Err(); err != nil {
		return nil, err
	}
	if !g.typ.Equal(*r.typ) || g.dev != r.dev {
		return nil, fmt.Errorf("%w: %v on %v for a root %v on %v", ErrGradient, *g.typ, g.dev.ID(), *r.typ, r.dev.ID())
	}
	return g.share()
}

// oneLike is 1, for a root with one element.
func oneLike(r *Tensor) (*Tensor, error) {
	raw := device.Bytes([]float64{1})
	if r.typ.Dtype == device.Float32 {
		raw = device.Bytes([]float32{1})
	}
	buf, err := r.dev.Alloc(len(raw))
	if err != nil {
		return nil, err
	}
	if err := r.dev.Upload(buf, 0, raw); err != nil {
		_ = buf.Release() // ours alone
		return nil, err
	}
	return manual(*r.typ, buf), nil
}

// Backward computes the gradients of all leaves that the roots depend on, on this worker alone.
func Backward(roots ...*Tensor) (*Gradients, error) { return BackwardWith(Options{}, roots...) }

// idleTasks are empty ones, kept for the memory that they have.
var idleTasks sync.Pool

// BackwardWith is Backward with options.
func BackwardWith(o Options, roots ...*Tensor) (*Gradients, error) {
	edges, first, err := Roots(o, roots)
	if err != nil {
		return nil, err
	}
	task, _ := idleTasks.Get().(*Task)
	if task == nil {
		task = &Task{}
	}
	task.prepare(edges, nil, nil)
	defer func() {
		task.Free()
		task.reset()
		idleTasks.Put(task)
	}()
	grads := &Gradients{}
	for i, e := range edges {
		if err := task.Deliver(e, first[i]); err != nil {
			freeAll(first[i+1:])
			return nil, err
		}
	}
	accumulate := func(of, d *Tensor) error {
		err := grads.AccumulateWith(of, d, o.pull())
		if err == nil && o.Take != nil {
			return o.Take(of, grads.Take(of))
		}
		return err
	}
	for {
		ran, err := task.step(o.pull(), accumulate)
		if err != nil {
			grads.Free()
			return nil, err
		}
		if !ran {
			break
		}
	}
	owner, _ := ownerOf(roots) // Roots checked it
	if err := grads.Settle(owner); err != nil {
		return nil, opError("Backward", err)
	}
	return grads, nil
}

// step runs one ready node of a task and delivers what comes out. A leaf's gradient goes to leaf,
// which takes it over. It says whether there was anything to run.
func (t *Task) step(how Pull, leaf func(of, grad *Tensor) error) (bool, error) {
	w := t.popReady()
	if w == nil {
		return false, nil
	}
	n, gys := w.node, w.grads
	if n.Leaf() != nil {
		g := gys[0]
		gys[0] = nil
		if g == nil {
			return true, nil
		}
		return true, leaf(n.Leaf(), g)
	}
	count := len(n.Next())
	t.outs = slices.Grow(t.outs[:0], count)[:count]
	clear(t.outs)
	err := n.pullInto(gys, how, t.outs)
	freeAll(gys)
	clear(gys)
	if err != nil {
		freeAll(t.outs)
		return true, err
	}
	return true, t.complete(w, t.outs)
}

// Complete delivers the gradients of a node's inputs along its edges; it takes them over. outs may
// be nil: none anywhere.
func (t *Task) Complete(n *Node, outs []*Tensor) error {
	at, _ := t.look(n)
	if at < 0 {
		freeAll(outs)
		return &Error{Op: n.Name(), Err: fmt.Errorf("%w: it takes no part in this backward", ErrGradient)}
	}
	return t.complete(&t.nodes[at], outs)
}

func (t *Task) complete(w *waiting, outs []*Tensor) error {
	var errs []error
	for i, e := range w.node.Next() {
		var g *Tensor
		if outs != nil {
			g = outs[i]
		}
		if e.Node == nil {
			g.free()
			continue
		}
		if err := t.deliver(t.paths[int(w.paths)+i], e, g); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
