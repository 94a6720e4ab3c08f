package autodiff

import "fmt"

// Task is one backward over one worker's part of the graph, as a state machine: who takes part, what each still waits for,
// and which nodes are ready. It does no I/O and runs nothing by itself; it is not safe for concurrent use.
//
// A node is ready when as many gradients (or notices that there is none) have arrived as there are edges into it from nodes
// that take part. Sources are ready when Start gives them their gradients.
type Task struct {
	nodes []waiting
	where map[*Node]int32 // of nodes; nil while they are few
	queue []*waiting      // those that are or were ready, in order
	head  int             // of the queue
	left  int             // nodes that have not been taken

	few struct { // what a small task needs, in one piece of memory
		nodes [8]waiting
		queue [8]*waiting
		grads [12]*Tensor
	}
}

type waiting struct {
	node  *Node
	grads []*Tensor
	edges int32 // gradients still to come
	state nodeState
}

type nodeState uint8

const (
	waits nodeState = iota
	queued
	taken
)

// maxFew is up to how many nodes looking through them is faster than a map.
const maxFew = 16

// NewTask finds all nodes reachable from the roots and the sources.
func NewTask(roots []Edge, sources []*Node) *Task { return newTask(roots, sources, nil) }

// newTask is NewTask that does not look beyond the nodes at which it stops. Those take part, and are not to be run.
func newTask(roots []Edge, sources []*Node, stop map[*Node]bool) *Task {
	t := &Task{}
	t.nodes, t.queue = t.few.nodes[:0], t.few.queue[:0]
	for _, e := range roots {
		t.enter(e.Node)
	}
	for _, n := range sources {
		if t.find(n) == nil { // no edge leads to a source, but it may be listed twice
			t.enter(n)
		}
	}
	slots := 0
	for i := 0; i < len(t.nodes); i++ {
		n := t.nodes[i].node
		slots += len(n.outs)
		if stop[n] {
			continue
		}
		for _, e := range n.next {
			t.enter(e.Node)
		}
	}
	grads := t.few.grads[:]
	if slots > len(grads) {
		grads = make([]*Tensor, slots)
	}
	for i := range t.nodes {
		n := len(t.nodes[i].node.outs)
		t.nodes[i].grads, grads = grads[:n:n], grads[n:]
	}
	if t.left = len(t.nodes); t.left > cap(t.queue) {
		t.queue = make([]*waiting, 0, t.left)
	}
	return t
}

// enter notes an edge into n.
func (t *Task) enter(n *Node) {
	if n == nil {
		return
	}
	if w := t.find(n); w != nil {
		w.edges++
		return
	}
	t.nodes = append(t.nodes, waiting{node: n, edges: 1})
	switch at := int32(len(t.nodes) - 1); {
	case t.where != nil:
		t.where[n] = at
	case at == maxFew:
		t.where = make(map[*Node]int32, 4*maxFew)
		for i := range t.nodes {
			t.where[t.nodes[i].node] = int32(i)
		}
	}
}

// find is what is known of a node, nil where it does not take part.
func (t *Task) find(n *Node) *waiting {
	if t.where != nil {
		if at, ok := t.where[n]; ok {
			return &t.nodes[at]
		}
		return nil
	}
	for i := range t.nodes {
		if t.nodes[i].node == n {
			return &t.nodes[i]
		}
	}
	return nil
}

// Deliver brings a gradient to one edge, or nil for none. The task takes over g. It fails with ErrGradient when the type is not
// that of the result, or nothing was expected there; g is freed then.
func (t *Task) Deliver(e Edge, g *Tensor) error {
	if e.Node == nil {
		g.free()
		return nil
	}
	w := t.find(e.Node)
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
	t.arrived(w)
	return nil
}

// Start gives a source its gradients, one per tensor, nil for none. The task takes them over.
func (t *Task) Start(source *Node, grads []*Tensor) error {
	w := t.find(source)
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
	t.arrived(w)
	return nil
}

func (t *Task) arrived(w *waiting) {
	if w.edges--; w.edges == 0 {
		w.state = queued
		t.queue = append(t.queue, w)
	}
}

// Next takes a ready node and the gradients of its results, which the caller must free. Nodes become ready in a fixed order
// for a fixed order of deliveries.
func (t *Task) Next() (n *Node, grads []*Tensor, ok bool) {
	if t.Ready() == 0 {
		return nil, nil, false
	}
	w := t.queue[t.head]
	t.head++
	t.left--
	grads, w.grads, w.state = w.grads, nil, taken
	return w.node, grads, true
}

// Left is the number of nodes that have not been taken.
func (t *Task) Left() int { return t.left }

// Ready is the number of nodes that Next would give.
func (t *Task) Ready() int { return len(t.queue) - t.head }

// Waiting names the nodes that still wait for a gradient, for a report.
func (t *Task) Waiting() []*Node {
	var ns []*Node
	for i := range t.nodes {
		if t.nodes[i].state == waits {
			ns = append(ns, t.nodes[i].node)
		}
	}
	return ns
}

// Free drops every gradient that the task holds.
func (t *Task) Free() {
	for i := range t.nodes {
		freeAll(t.nodes[i].grads)
		t.nodes[i].grads = nil
	}
}

// accumulate adds g to sum (nil: nothing yet); it takes over both.
func accumulate(sum, g *Tensor) (*Tensor, error) {
	if sum == nil {
		return g, nil
	}
	if sum.sparse && !g.sparse { // rows are added to the whole
		sum, g = g, sum
	}
	defer g.free()
	switch done, err := addInPlace(sum, g); {
	case err != nil:
		sum.free()
		return nil, err
	case done:
		return sum, nil
	}
	defer sum.free()
	return sumOf(sum, g)
}
