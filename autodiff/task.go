package autodiff

import "fmt"

// Task is one backward over one worker's part of the graph, as a state machine: who takes part, what each still waits for,
// and which nodes are ready. It does no I/O and runs nothing by itself; it is not safe for concurrent use.
//
// A node is ready when as many gradients (or notices that there is none) have arrived as there are edges into it from nodes
// that take part. Sources are ready when Start gives them their gradients.
type Task struct {
	nodes map[*Node]*waiting
	ready []*Node
	left  int // nodes that have not been taken
}

type waiting struct {
	edges int // gradients still to come
	grads []*Tensor
	state nodeState
}

type nodeState uint8

const (
	waits nodeState = iota
	queued
	taken
)

// NewTask finds all nodes reachable from the roots and the sources.
func NewTask(roots []Edge, sources []*Node) *Task { return newTask(roots, sources, nil) }

// newTask is NewTask that does not look beyond the nodes at which it stops. Those take part, and are not to be run.
func newTask(roots []Edge, sources []*Node, stop map[*Node]bool) *Task {
	t := &Task{nodes: map[*Node]*waiting{}}
	var stack []*Node
	enter := func(n *Node) {
		w := t.nodes[n]
		if w == nil {
			w = &waiting{grads: make([]*Tensor, len(n.outs))}
			t.nodes[n] = w
			stack = append(stack, n)
			t.left++
		}
		w.edges++
	}
	for _, e := range roots {
		if e.Node != nil {
			enter(e.Node)
		}
	}
	for _, n := range sources {
		if t.nodes[n] == nil { // no edge leads to a source, but it may be listed twice
			enter(n)
		}
	}
	for len(stack) > 0 {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if stop[n] {
			continue
		}
		for _, e := range n.next {
			if e.Node != nil {
				enter(e.Node)
			}
		}
	}
	return t
}

// Deliver brings a gradient to one edge, or nil for none. The task takes over g. It fails with ErrGradient when the type is not
// that of the result, or nothing was expected there; g is freed then.
func (t *Task) Deliver(e Edge, g *Tensor) error {
	if e.Node == nil {
		g.free()
		return nil
	}
	w := t.nodes[e.Node]
	if w == nil || w.state != waits || e.Slot >= len(w.grads) {
		g.free()
		return &Error{Op: e.Node.name, Err: fmt.Errorf("%w: it came when none was expected", ErrGradient)}
	}
	if g != nil {
		if err := g.err; err != nil {
			return &Error{Op: e.Node.name, Err: fmt.Errorf("%w: %w", ErrGradient, err)}
		}
		if want := e.Node.outs[e.Slot]; !g.typ.Equal(want) {
			g.free()
			return &Error{Op: e.Node.name, Err: fmt.Errorf("%w: %v for result %d, which is %v", ErrGradient, g.typ, e.Slot, want)}
		}
		sum, err := accumulate(w.grads[e.Slot], g)
		if err != nil {
			return &Error{Op: e.Node.name, Err: err}
		}
		w.grads[e.Slot] = sum
	}
	t.arrived(e.Node, w)
	return nil
}

// Start gives a source its gradients, one per tensor, nil for none. The task takes them over.
func (t *Task) Start(source *Node, grads []*Tensor) error {
	w := t.nodes[source]
	if w == nil || w.state != waits || len(grads) != len(source.outs) {
		freeAll(grads)
		return &Error{Op: source.name, Err: fmt.Errorf("%w: %d gradients came for %d tensors, or a second time", ErrGradient, len(grads), len(source.outs))}
	}
	for i, g := range grads {
		if g != nil && !g.typ.Equal(source.outs[i]) {
			err := &Error{Op: source.name, Err: fmt.Errorf("%w: %v for tensor %d, which is %v", ErrGradient, g.typ, i, source.outs[i])}
			freeAll(grads)
			return err
		}
	}
	w.grads = grads
	t.arrived(source, w)
	return nil
}

func (t *Task) arrived(n *Node, w *waiting) {
	if w.edges--; w.edges == 0 {
		w.state = queued
		t.ready = append(t.ready, n)
	}
}

// Next takes a ready node and the gradients of its results, which the caller must free. Nodes become ready in a fixed order
// for a fixed order of deliveries.
func (t *Task) Next() (n *Node, grads []*Tensor, ok bool) {
	if len(t.ready) == 0 {
		return nil, nil, false
	}
	n = t.ready[0]
	t.ready = t.ready[1:]
	w := t.nodes[n]
	grads, w.grads, w.state = w.grads, nil, taken
	t.left--
	return n, grads, true
}

// Left is the number of nodes that have not been taken.
func (t *Task) Left() int { return t.left }

// Ready is the number of nodes that Next would give.
func (t *Task) Ready() int { return len(t.ready) }

// Waiting names the nodes that still wait for a gradient, for a report.
func (t *Task) Waiting() []*Node {
	var ns []*Node
	for n, w := range t.nodes {
		if w.state == waits {
			ns = append(ns, n)
		}
	}
	return ns
}

// Free drops every gradient that the task holds.
func (t *Task) Free() {
	for _, w := range t.nodes {
		freeAll(w.grads)
		w.grads = nil
	}
}

// accumulate adds g to sum (nil: nothing yet); it takes over both.
func accumulate(sum, g *Tensor) (*Tensor, error) {
	if sum == nil {
		return g, nil
	}
	defer sum.free()
	defer g.free()
	return sumOf(sum, g)
}
