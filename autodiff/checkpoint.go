package autodiff

import (
	"fmt"
	"slices"
	"sync"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/callsite"
	"github.com/weft-project/weft/kernels"
)

// Checkpoint calls fn and keeps nothing of it but its inputs and results: what it computes on the
// way is freed when it returns, and computed anew when gradients arrive. That costs a second
// forward and saves its memory. Checkpoints may be nested. When something is wrong the result is a
// single tensor that carries the error, as with [Func.CallAll].
//
// fn must compute the same when it is called again, on whichever goroutine drives the backward;
// results of another number, type or history are [ErrRecompute]. Dropout and batch norm of package
// nn know a second run ([Draw]). A random mask that is drawn otherwise inside fn is another one the
// second time, unnoticed: draw it outside, or from a source seeded inside. The tensors that fn
// makes are its own: one that it keeps elsewhere is freed.
//
// What fn reads without being given it (a layer's parameters) gets gradients too, and has at the
// second run the value that it had at the first. What fn computes from such tensors alone, without
// its inputs, lives as long as without a checkpoint and is read anew: where that is much, make them
// inputs.
func Checkpoint(fn func(in ...*Tensor) []*Tensor, in ...*Tensor) []*Tensor {
	if fn == nil {
		return []*Tensor{failed(opError("checkpoint", fmt.Errorf("%w: the function is nil", ErrFunction)))}
	}
	outs, err := CheckpointFunc("checkpoint", callsite.Outside(), func(in []*Tensor) ([]*Tensor, error) { return fn(in...), nil }, in...)
	if err != nil {
		return []*Tensor{failed(opError("checkpoint", err))}
	}
	return outs
}

// CheckpointFunc is Checkpoint for a function that may fail; name and at are its node's in the
// graph and in errors.
func CheckpointFunc(name string, at Site, fn func(in []*Tensor) ([]*Tensor, error), in ...*Tensor) ([]*Tensor, error) {
	k := &checkpoint{name: name, at: at, fn: fn}
	defer func() {
		if k.node == nil {
			k.free()
		}
	}()
	var err error
	if k.outer, err = ownerOf(in); err != nil {
		return nil, err
	}
	for _, t := range in {
		b, err := t.acquire()
		if err != nil {
			return nil, err
		}
		k.saved = append(k.saved, b)
		k.in = append(k.in, input{*t.typ, t.requiresGrad})
	}
	k.pins.of = map[*Tensor]*device.Buffer{}
	first, err := k.play(k.saved, &k.pins)
	defer first.scope.Free()
	if err != nil {
		return nil, err
	}
	if k.outer == nil {
		k.outer = first.scope.root()
	}
	return k.record(first, EdgesOf(in...))
}

// checkpoint is what a node needs to run its function again.
type checkpoint struct {
	name     string
	at       Site
	fn       func(in []*Tensor) ([]*Tensor, error)
	outer    *Arena
	in       []input
	out      []output
	captured []Edge // where gradients go that do not go to inputs
	node     *Node  // nil where there is nothing to pull back

	pins  pins
	mu    sync.Mutex
	saved []*device.Buffer // the inputs, one reference each
	gone  bool
}

type input struct {
	typ      kernels.Type
	requires bool
}

// output is what must be the same the second time.
type output struct {
	typ kernels.Type
	dev device.Device
	own bool // made here, not handed through from outside
	has bool // a gradient
}

// played is one run of the function.
type played struct {
	scope    *Arena
	views    []*Tensor // the inputs, as leaves of a graph of their own
	outs     []*Tensor
	captured []Edge // from that graph into others, in a fixed order
}

// play runs the function on values that the caller holds, in a scope that the caller must free,
// also after an error.
func (k *checkpoint) play(values []*device.Buffer, pins *pins) (p *played, err error) {
	p = &played{scope: newScope("a checkpoint of "+k.name, k.outer)}
	p.scope.scope.pins = pins
	for i, b := range values {
		v := newTensor(k.in[i].typ, b.Retain(), p.scope)
		if k.in[i].requires {
			v.RequireGrad()
		}
		p.views = append(p.views, v)
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: panic in %s: %v", ErrFunction, k.name, r)
		}
	}()
	if p.outs, err = k.fn(slices.Clone(p.views)); err != nil {
		return p, err
	}
	for _, t := range p.outs {
		if err := t.Err(); err != nil {
			return p, err
		}
	}
	p.explore()
	return p, nil
}

// explore finds the edges that leave the graph of the scope.
func (p *played) explore() {
	var inner []*Node
	seen := map[*Node]bool{}
	enter := func(e Edge) {
		switch n := e.Node; {
		case n == nil || n.Leaf() != nil && n.Leaf().owner == p.scope:
		case n.of != p.scope:
			if !slices.Contains(p.captured, e) {
				p.captured = append(p.captured, e)
			}
		case !seen[n]:
			seen[n], inner = true, append(inner, n)
		}
	}
	for _, t := range p.outs {
		if t.owner == p.scope {
			enter(t.edge)
		}
	}
	for i := 0; i < len(inner); i++ {
		for _, e := range inner[i].Next() {
			enter(e)
		}
	}
}

func (p *played) output(t *Tensor) output {
	own := t.owner == p.scope
	return output{*t.typ, t.dev, own, own && t.requiresGrad}
}

// record moves the results to the outer arena and makes the node. edges are those of the inputs.
func (k *checkpoint) record(p *played, edges []Edge) ([]*Tensor, error) {
	outs, tracked := make([]*Tensor, len(p.outs)), false
	for i, t := range p.outs {
		o := p.output(t)
		k.out, tracked = append(k.out, o), tracked || o.has
		if !o.own {
			outs[i] = t
			continue
		}
		b, err := t.detached()
		if err != nil {
			return nil, err
		}
		if outs[i] = newTensor(*t.typ, b, k.outer); outs[i].err != nil {
			return nil, outs[i].err
		}
	}
	if !tracked {
		return outs, nil
	}
	k.captured = p.captured
	k.node = &Node{at: &k.at, of: k.outer, rare: &rare{name: k.name, next: slices.Concat(edges, p.captured), pull: k.pull}}
	for i, o := range k.out {
		k.node.rare.outs = append(k.node.rare.outs, o.typ)
		if o.has {
			outs[i].requiresGrad, outs[i].edge = true, Edge{k.node, i}
		}
	}
	if k.outer != nil {
		if err := k.outer.adopt(k, 0); err != nil {
			k.free()
			return nil, err
		}
	}
	return outs, nil
}

func (k *checkpoint) free() {
	k.mu.Lock()
	saved := k.saved
	k.saved, k.gone = nil, true
	k.mu.Unlock()
	releaseAll(saved)
	k.pins.free()
}

// hold takes references to what a second run needs.
func (k *checkpoint) hold() ([]*device.Buffer, *pins, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.gone {
		return nil, nil, fmt.Errorf("%s: %w", k.name, ErrGraphFreed)
	}
	held := make([]*device.Buffer, len(k.saved))
	for i, b := range k.saved {
		held[i] = b.Retain()
	}
	return held, k.pins.copy(), nil
}

// pull is the backward of the node: it runs the function again, and its graph backward.
func (k *checkpoint) pull(gys []*Tensor, how Pull) ([]*Tensor, error) {
	out := make([]*Tensor, len(k.node.Next()))
	if slices.ContainsFunc(gys, func(g *Tensor) bool { return g != nil }) {
		values, pins, err := k.hold()
		if err != nil {
			return nil, err
		}
		defer pins.free()
		defer releaseAll(values)
		again, err := k.play(values, pins)
		defer again.scope.Free()
		if err == nil {
			err = k.compare(again)
		}
		if err == nil {
			err = again.backward(gys, how.Anomaly, out)
		}
		if err != nil {
			freeAll(out)
			return nil, err
		}
	}
	if !how.Retain {
		k.free()
	}
	return out, nil
}

// compare says where a second run differs from the first.
func (k *checkpoint) compare(p *played) error {
	if len(p.outs) != len(k.out) {
		return fmt.Errorf("%w: it gave %d results, and now %d", ErrRecompute, len(k.out), len(p.outs))
	}
	for i, t := range p.outs {
		if was, is := k.out[i], p.output(t); !was.typ.Equal(is.typ) || was.dev != is.dev || was.own != is.own || was.has != is.has {
			return fmt.Errorf("%w: result %d was %v on %v, and is now %v with another type, device or history", ErrRecompute, i, was.typ, was.dev.ID(), t)
		}
	}
	if len(p.captured) != len(k.captured) {
		return fmt.Errorf("%w: it read %d tensors with gradients that are not its inputs, and now %d", ErrRecompute, len(k.captured), len(p.captured))
	}
	for i, is := range p.captured {
		was := k.captured[i]
		if is.Slot != was.Slot || is.Node != was.Node && (is.Node.Leaf() != nil || is.Node.Name() != was.Node.Name() || !is.Node.Results()[is.Slot].Equal(was.Node.Results()[was.Slot])) {
			return fmt.Errorf("%w: it read a tensor of %s, and now one of %s", ErrRecompute, was.Node.what(), is.Node.what())
		}
	}
	return nil
}

// backward runs the scope's graph backward from the gradients of its results, and puts into out
// those of the inputs, then those of the captured edges.
func (p *played) backward(gys []*Tensor, anomaly bool, out []*Tensor) error {
	stop := map[*Node]bool{}
	for _, e := range p.captured {
		stop[e.Node] = true
	}
	var roots []Edge
	for i, g := range gys {
		if g != nil {
			roots = append(roots, p.outs[i].edge)
		}
	}
	task := &Task{}
	task.prepare(roots, nil, stop)
	defer task.Free()
	for i, g := range gys {
		if g == nil {
			continue
		}
		first, err := g.share()
		if err != nil {
			return err
		}
		if err := task.Deliver(p.outs[i].edge, first); err != nil {
			return err
		}
	}
	for {
		n, gs, ok := task.Next()
		if !ok {
			return nil
		}
		if err := p.runNode(task, n, gs, stop[n], anomaly, out); err != nil {
			return err
		}
	}
}

// runNode runs one node, or hands over the gradients that have come to the edge of the graph.
func (p *played) runNode(task *Task, n *Node, gs []*Tensor, captured, anomaly bool, out []*Tensor) error {
	switch {
	case captured:
		for slot, g := range gs {
			if g != nil {
				out[len(p.views)+slices.Index(p.captured, Edge{n, slot})] = g
			}
		}
		return nil
	case n.Leaf() != nil:
		if err := n.RunHooks(gs); err != nil {
			freeAll(gs)
			return err
		}
		out[slices.Index(p.views, n.Leaf())] = gs[0]
		return nil
	}
	outs, err := n.PullWith(gs, Pull{Anomaly: anomaly})
	freeAll(gs)
	if err != nil {
		return err
	}
	return task.Complete(n, outs)
}
