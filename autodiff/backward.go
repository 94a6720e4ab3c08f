package autodiff

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// Gradients are the results of a backward, by leaf. Those of [Backward] belong to the owner of the roots, or to nobody; who
// accumulates his own owns them until Settle or Free. Not safe for concurrent use.
//
// A sum that fails takes both its summands along: the table is spoiled then, and every later sum, Merge and Settle gives that error, until
// Free.
type Gradients struct {
	of  map[*Tensor]*Tensor
	err error // of a sum that failed
}

// Settle gives all gradients to an owner, or to nobody. When the owner is freed already, so are they.
func (g *Gradients) Settle(owner *Arena) error {
	if err := g.err; err != nil {
		g.Free()
		return err
	}
	for _, d := range g.of {
		if err := d.settle(owner); err != nil {
			g.Free()
			return err
		}
	}
	return nil
}

// Of is the gradient of a leaf, nil where there is none.
func (g *Gradients) Of(leaf *Tensor) *Tensor { return g.of[leaf] }

// All is a copy of the table leaf → gradient.
func (g *Gradients) All() map[*Tensor]*Tensor {
	all := make(map[*Tensor]*Tensor, len(g.of))
	for k, v := range g.of {
		all[k] = v
	}
	return all
}

// Len is the number of leaves with a gradient.
func (g *Gradients) Len() int { return len(g.of) }

// Accumulate adds a gradient for a leaf, and runs the leaf's hooks before and after; it takes d over.
func (g *Gradients) Accumulate(leaf, d *Tensor) error { return g.AccumulateWith(leaf, d, Pull{}) }

// AccumulateWith is Accumulate with options: with Anomaly a sum that is not finite is an [AnomalyError].
func (g *Gradients) AccumulateWith(leaf, d *Tensor, how Pull) error {
	n := leaf.edge.Node
	if n != nil {
		ds := [1]*Tensor{d}
		if err := n.RunHooks(ds[:]); err != nil {
			ds[0].free()
			return err
		}
		d = ds[0]
	}
	if err := g.add(leaf, d); err != nil {
		return err
	}
	if how.Anomaly {
		if err := inspectLeaf(leaf, g.of[leaf]); err != nil {
			return err
		}
	}
	if n == nil {
		return nil
	}
	return n.accumulated(g, leaf)
}

func (g *Gradients) add(leaf, d *Tensor) error {
	if g.err != nil {
		d.free()
		return g.err
	}
	if g.of == nil {
		g.of = map[*Tensor]*Tensor{}
	}
	have := g.of[leaf]
	delete(g.of, leaf)
	sum, err := accumulate(have, d)
	if err != nil {
		g.err = err
		return err
	}
	g.of[leaf] = sum
	return nil
}

// Merge adds all gradients of another table, which is empty afterwards. No hooks run: they have. After an error the other table keeps
// what was not added yet.
func (g *Gradients) Merge(other *Gradients) error {
	if g.err == nil {
		g.err = other.err
	}
	for leaf, d := range other.of {
		if g.err != nil {
			break
		}
		delete(other.of, leaf)
		_ = g.add(leaf, d) // stays in g.err
	}
	return g.err
}

// Take takes a gradient out: it is the caller's.
func (g *Gradients) Take(leaf *Tensor) *Tensor {
	d := g.of[leaf]
	delete(g.of, leaf)
	return d
}

// Bytes is what the gradients hold: of sparse ones their rows.
func (g *Gradients) Bytes() (n int64) {
	for _, d := range g.of {
		n += int64(d.held())
	}
	return n
}

// Free drops all gradients.
func (g *Gradients) Free() {
	for _, d := range g.of {
		d.free()
	}
	g.of, g.err = nil, nil
}

// Options of a backward. The zero value frees the saved values as it goes and starts from scalar roots with gradient 1.
type Options struct {
	RetainGraph bool      // keep the saved values for another backward
	Anomaly     bool      // fail with an AnomalyError where a gradient becomes NaN or infinite
	Grads       []*Tensor // gradients of the roots, one each; nil entries mean 1 and need a scalar root
}

// Pull says how nodes are run.
type Pull struct {
	Retain  bool // the saved values stay for another backward
	Anomaly bool // look for NaN and infinity in what the node makes
}

// Pull is how these options run nodes.
func (o Options) Pull() Pull { return Pull{Retain: o.RetainGraph, Anomaly: o.Anomaly} }

// Roots checks the roots of a backward and gives their edges and first gradients, which the caller must deliver or free.
func Roots(o Options, roots []*Tensor) ([]Edge, []*Tensor, error) {
	if len(roots) == 0 {
		return nil, nil, opError("Backward", ErrNoRoots)
	}
	if len(o.Grads) > 0 && len(o.Grads) != len(roots) {
		return nil, nil, opError("Backward", fmt.Errorf("%w: %d output gradients for %d roots", ErrGradient, len(o.Grads), len(roots)))
	}
	owner, err := ownerOf(roots)
	if err == nil && len(o.Grads) > 0 {
		var of *Arena
		if of, err = ownerOf(o.Grads); err == nil {
			_, err = mix(owner, of)
		}
	}
	if err != nil {
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

// ownerOf is the one arena among the owners of tensors; nil entries are skipped.
func ownerOf(ts []*Tensor) (owner *Arena, err error) {
	for _, t := range ts {
		if owner, err = mix(owner, t.Owner()); err != nil {
			return nil, err
		}
	}
	return owner, nil
}

func rootGradient(o Options, i int, r *Tensor) (*Tensor, error) {
	if err := r.Err(); err != nil {
		return nil, err
	}
	if !r.requiresGrad {
		return nil, fmt.Errorf("%w on %v", ErrNoGrad, r)
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

// Step runs one ready node of a task and delivers what comes out. A leaf's gradient goes to leaf, which takes it over.
// It says whether there was anything to run.
func (t *Task) Step(how Pull, leaf func(of, grad *Tensor) error) (bool, error) {
	w := t.take()
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
	return true, t.finish(w, t.outs)
}

// Finish delivers the gradients of a node's inputs along its edges; it takes them over. outs may be nil: none anywhere.
func (t *Task) Finish(n *Node, outs []*Tensor) error {
	at, _ := t.look(n)
	if at < 0 {
		freeAll(outs)
		return &Error{Op: n.Name(), Err: fmt.Errorf("%w: it takes no part in this backward", ErrGradient)}
	}
	return t.finish(&t.nodes[at], outs)
}

func (t *Task) finish(w *waiting, outs []*Tensor) error {
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

// NodeError says in which recorded function a backward failed.
type NodeError struct {
	Node *Node
	Err  error
}

func (e *NodeError) Error() string {
	return fmt.Sprintf("backward of %s%s: %v", e.Node.Name(), e.Node.Site().calledAt(), e.Err)
}

// Unwrap lets errors.Is find the cause.
func (e *NodeError) Unwrap() error { return e.Err }

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
	task.begin(edges, nil, nil)
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
	accumulate := func(of, d *Tensor) error { return grads.AccumulateWith(of, d, o.Pull()) }
	for {
		ran, err := task.Step(o.Pull(), accumulate)
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

// runOne runs a single instruction with one result.
func runOne(dev device.Device, i kernels.Instr, types []kernels.Type, in ...*device.Buffer) (*device.Buffer, error) {
	out, err := i.Infer(types)
	if err != nil {
		return nil, err
	}
	buf, err := dev.Alloc(out[0].Bytes())
	if err != nil {
		return nil, err
	}
	if err := runInto(buf, i, types, in...); err != nil {
		_ = buf.Release() // ours alone
		return nil, err
	}
	return buf, nil
}

// runInto is runOne with a buffer for the result.
func runInto(out *device.Buffer, i kernels.Instr, types []kernels.Type, in ...*device.Buffer) error {
	backend, err := kernels.For(out.Device())
	if err != nil {
		return err
	}
	k, err := backend.Prepare(i, types)
	if err != nil {
		return err
	}
	return k.Run([]*device.Buffer{out}, in)
}
