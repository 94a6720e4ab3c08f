package autodiff

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/weft-project/weft/autodiff/internal/cache"
)

// Task is one backward over one worker's part of the graph, as a state machine: who takes part,
// what each still waits for, and which nodes are ready. It does no I/O and runs nothing by itself;
// it is not safe for concurrent use.
//
// A node is ready when as many gradients (or notices that there is none) have arrived as there are
// edges into it from nodes that take part. Sources are ready when Start gives them their gradients.
type Task struct {
	nodes []waiting
	table []int32   // of nodes, by their addresses: indices + 1; nil while they are few
	paths []int32   // of each node in turn, one for each of its edges: where in nodes that leads, −1 for nowhere
	queue []int32   // those that are or were ready, in order
	head  int       // of the queue
	left  int       // nodes that have not been taken
	grads []*Tensor // of all nodes
	outs  []*Tensor // of the node that step runs

	few struct { // what a small task needs, in one piece of memory
		nodes [8]waiting
		paths [12]int32
		queue [8]int32
		grads [12]*Tensor
	}
}

type waiting struct {
	node  *Node
	grads []*Tensor
	edges int32 // gradients still to come
	paths int32 // where its paths begin
	state nodeState
}

type nodeState uint8

const (
	waits nodeState = iota
	queued
	taken
)

// maxFew is up to how many nodes looking through them is faster than a table.
const maxFew = 8

// NewTask finds all nodes reachable from the roots and the sources.
func NewTask(roots []Edge, sources []*Node) *Task {
	t := &Task{}
	t.prepare(roots, sources, nil)
	return t
}

// prepare makes a task of an empty one. It does not look beyond the nodes at which it stops; those
// take part, and are not to be run.
func (t *Task) prepare(roots []Edge, sources []*Node, stop map[*Node]bool) {
	if t.nodes == nil {
		t.nodes, t.paths, t.queue, t.grads = t.few.nodes[:0], t.few.paths[:0], t.few.queue[:0], t.few.grads[:0]
	}
	for _, e := range roots {
		t.addEdge(e.Node)
	}
	for _, n := range sources {
		if at, _ := t.look(n); at < 0 { // no edge leads to a source, but it may be listed twice
			t.addEdge(n)
		}
	}
	slots := 0
	for i := 0; i < len(t.nodes); i++ {
		n := t.nodes[i].node
		slots += len(n.Results())
		t.nodes[i].paths = int32(len(t.paths))
		if stop[n] {
			continue
		}
		for _, e := range n.Next() {
			t.paths = append(t.paths, t.addEdge(e.Node))
		}
	}
	t.grads = slices.Grow(t.grads[:0], slots)[:slots]
	grads := t.grads
	for i := range t.nodes {
		n := len(t.nodes[i].node.Results())
		t.nodes[i].grads, grads = grads[:n:n], grads[n:]
	}
	t.left = len(t.nodes)
	t.queue = slices.Grow(t.queue, t.left)
}

// reset empties a task whose gradients are all freed, to be begun anew.
func (t *Task) reset() {
	clear(t.nodes)
	clear(t.table)
	clear(t.grads)
	clear(t.outs)
	t.nodes, t.table, t.paths, t.queue, t.head, t.left = t.nodes[:0], t.table[:0], t.paths[:0], t.queue[:0], 0, 0
}

// addEdge notes an edge into n. It says where n is, −1 for nil.
func (t *Task) addEdge(n *Node) int32 {
	if n == nil {
		return -1
	}
	at, place := t.look(n)
	if at >= 0 {
		t.nodes[at].edges++
		return at
	}
	at = int32(len(t.nodes))
	t.nodes = append(t.nodes, waiting{node: n, edges: 1})
	switch {
	case place >= 0 && 2*len(t.nodes) <= len(t.table):
		t.table[place] = at + 1
	case len(t.nodes) > maxFew:
		t.tabulate()
	}
	return at
}

// look is where n is, −1 where it does not take part, and the place in the table where it is or
// would be.
func (t *Task) look(n *Node) (at int32, place int) {
	if len(t.table) == 0 {
		for i := range t.nodes {
			if t.nodes[i].node == n {
				return int32(i), -1
			}
		}
		return -1, -1
	}
	mask := len(t.table) - 1
	for p := int(cache.Mix(0, uint64(uintptr(unsafe.Pointer(n))))>>32) & mask; ; p = (p + 1) & mask {
		switch at := t.table[p] - 1; {
		case at < 0:
			return -1, p
		case t.nodes[at].node == n:
			return at, p
		}
	}
}

// tabulate makes a table for four times as many nodes.
func (t *Task) tabulate() {
	size := 8 * maxFew
	for size < 8*len(t.nodes) {
		size *= 2
	}
	t.table = slices.Grow(t.table[:0], size)[:size]
	clear(t.table)
	for i := range t.nodes {
		_, place := t.look(t.nodes[i].node)
		t.table[place] = int32(i) + 1
	}
}

// Deliver brings a gradient to one edge, or nil for none. The task takes over g. It fails with
// ErrGradient when the type is not that of the result, or nothing was expected there; g is freed
// then.
func (t *Task) Deliver(e Edge, g *Tensor) error {
	if e.Node == nil {
		g.free()
		return nil
	}
	at, _ := t.look(e.Node)
	return t.deliver(at, e, g)
}

// deliver is Deliver to the node at that index, −1 where it does not take part.
func (t *Task) deliver(at int32, e Edge, g *Tensor) error {
	var w *waiting
	if at >= 0 {
		w = &t.nodes[at]
	}
	if w == nil || w.state != waits || e.Slot >= len(w.grads) {
		g.free()
		return &Error{Op: e.Node.Name(), Err: fmt.Errorf("%w: it came when none was expected", ErrGradient)}
	}
	if g != nil {
		if err := g.err; err != nil {
			return &Error{Op: e.Node.Name(), Err: fmt.Errorf("%w: %w", ErrGradient, err)}
		}
		if want := &e.Node.Results()[e.Slot]; g.typ != want && !g.typ.Equal(*want) {
			g.free()
			return &Error{Op: e.Node.Name(), Err: fmt.Errorf("%w: %v for result %d, which is %v", ErrGradient, *g.typ, e.Slot, *want)}
		}
		sum, err := accumulate(w.grads[e.Slot], g)
		if err != nil {
			return &Error{Op: e.Node.Name(), Err: err}
		}
		w.grads[e.Slot] = sum
	}
	t.arrived(at)
	return nil
}

// Start gives a source its gradients, one per tensor, nil for none. The task takes them over.
func (t *Task) Start(source *Node, grads []*Tensor) error {
	at, _ := t.look(source)
	if at < 0 || t.nodes[at].state != waits || len(grads) != len(source.Results()) {
		freeAll(grads)
		return &Error{Op: source.Name(), Err: fmt.Errorf("%w: %d gradients came for %d tensors, or a second time", ErrGradient, len(grads), len(source.Results()))}
	}
	for i, g := range grads {
		if g != nil && !g.typ.Equal(source.Results()[i]) {
			err := &Error{Op: source.Name(), Err: fmt.Errorf("%w: %v for tensor %d, which is %v", ErrGradient, *g.typ, i, source.Results()[i])}
			freeAll(grads)
			return err
		}
	}
	t.nodes[at].grads = grads
	t.arrived(at)
	return nil
}

func (t *Task) arrived(at int32) {
	w := &t.nodes[at]
	if w.edges--; w.edges == 0 {
		w.state = queued
		t.queue = append(t.queue, at)
	}
}

// Next takes a ready node and the gradients of its results, which the caller must free. Nodes
// become ready in a fixed order for a fixed order of deliveries.
func (t *Task) Next() (n *Node, grads []*Tensor, ok bool) {
	w := t.popReady()
	if w == nil {
		return nil, nil, false
	}
	grads, w.grads = w.grads, nil
	return w.node, grads, true
}

// popReady takes a ready node, nil where there is none.
func (t *Task) popReady() *waiting {
	if t.Ready() == 0 {
		return nil
	}
	w := &t.nodes[t.queue[t.head]]
	t.head++
	t.left--
	w.state = taken
	return w
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
