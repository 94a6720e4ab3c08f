package autodiff

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/weft-project/weft/autodiff/internal/compile"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/callsite"
	"github.com/weft-project/weft/kernels"
)

// Edge says where a gradient goes: to result Slot of the function that Node records. The zero Edge
// goes nowhere.
type Edge struct {
	Node *Node
	Slot int
}

// Site is a place in a user's code, File and Line; zero where it is not known.
type Site = callsite.Site

// Node is a recorded call on the tape: the gradients of its results come in, those of its inputs
// leave along Next. A leaf has no backward: it is where gradients accumulate. Package ctx makes
// nodes of its own for what crosses between workers.
type Node struct {
	fn    *compile.Function       // of a function's call; nil for any other node
	at    *Site                   // where the user called the function; nil where that is not known
	of    *Arena                  // that the results belong to
	rare  *rare                   // nil where there is nothing in it
	hooks atomic.Pointer[[]*hook] // never changed, only replaced

	edges [fewInputs]Edge // where the gradients of the inputs go; rare.next where they are more

	mu    sync.Mutex
	saved [fewSaved]*device.Buffer // of a call, one reference each: the inputs that are read, then the kept results; rare.saved where they are more
	saves uint8
	gone  bool // what was saved is freed

	inputs uint8
}

const (
	fewInputs = 3
	fewSaved  = 3
)

// rare is what most nodes do without.
type rare struct {
	leaf    *Tensor
	stepped atomic.Bool                 // an optimizer steps the leaf
	rounded weak.Pointer[device.Buffer] // the leaf's value as bfloat16, while somebody has saved that; guarded by the leaf's lock
	name    string                      // where the node is not a function's call
	next    []Edge
	outs    []kernels.Type // of results that are not a function's
	saved   []*device.Buffer
	later   []*Tensor                                          // whose values come and go: in the place of nil saved ones, in order
	visit   *Visit                                             // of tensors whose values come and go
	took    time.Duration                                      // the call; 0 where it was not timed
	gather  *gather                                            // of a call: its one gradient is sparse
	hook    func(grads []*Tensor) error                        // a sink's
	pull    func(grads []*Tensor, how Pull) ([]*Tensor, error) // a copy's or checkpoint's: the gradients of the inputs, which the caller must free
}

// Took is how long the call took, 0 where nobody measured: see [Arena.Time].
func (n *Node) Took() time.Duration {
	if n.rare == nil {
		return 0
	}
	return n.rare.took
}

// Site is where the user called the function; zero for what was not a function's call.
func (n *Node) Site() Site {
	if n.at == nil {
		return Site{}
	}
	return *n.at
}

// Name is the function's name.
func (n *Node) Name() string {
	if n.fn != nil {
		return n.fn.Name
	}
	return n.rare.name
}

// Next is where the gradients of the inputs go, one edge per input.
func (n *Node) Next() []Edge {
	if n.rare != nil && n.rare.next != nil {
		return n.rare.next
	}
	return n.edges[:n.inputs]
}

// Results are the types of the function's results.
func (n *Node) Results() []kernels.Type {
	if n.fn != nil {
		return n.fn.Results()
	}
	return n.rare.outs
}

// extra is the node's rare part, made where there is none yet. Only the node's maker may use it.
func (n *Node) extra() *rare {
	if n.rare == nil {
		n.rare = &rare{}
	}
	return n.rare
}

// Leaf is the tensor whose gradient accumulates here, nil for a function.
func (n *Node) Leaf() *Tensor {
	if n.rare == nil {
		return nil
	}
	return n.rare.leaf
}

// NewSource makes a node without results of its own in this worker's graph: gradients of tensors
// arrive from elsewhere and leave along the tensors' edges. It is what ctx calls a send function.
// Gradients for it are given to [Task.Start].
func NewSource(name string, tensors []*Tensor) *Node {
	return &Node{rare: &rare{name: name, outs: typesOf(tensors), next: EdgesOf(tensors...)}}
}

func typesOf(tensors []*Tensor) []kernels.Type {
	types := make([]kernels.Type, len(tensors))
	for i, t := range tensors {
		types[i] = *t.typ
	}
	return types
}

// NewSink makes a node at which gradients leave this worker: take gets one gradient per tensor, nil
// for none, valid during the call. The float tensors become its results: gradients of what is
// computed from them arrive at the node. It is what ctx calls a recv function. Only the maker of
// the tensors may call this, before they are used; requires says which of them need a gradient.
func NewSink(name string, tensors []*Tensor, requires []bool, take func(grads []*Tensor) error) *Node {
	n := &Node{rare: &rare{name: name, outs: typesOf(tensors), hook: take}}
	for i, t := range tensors {
		if requires[i] && t.err == nil && t.typ.Dtype.IsFloat() {
			t.requiresGrad, t.edge = true, Edge{n, i}
		}
	}
	return n
}

// NewShared makes the node of an operation that several workers do together, each with inputs and
// results of its own. The float results require gradients, also where no input does: another
// worker's may. A backward runs the node with [Pull.Shared]; without that it fails with alone. Only
// the maker of the results may call this, before they are used. Package ctx makes such nodes.
func NewShared(name string, inputs, results []*Tensor, alone error) *Node {
	at := callsite.Outside()
	n := &Node{at: &at, rare: &rare{name: name, outs: typesOf(results), next: EdgesOf(inputs...)}}
	n.rare.pull = func(gys []*Tensor, how Pull) ([]*Tensor, error) {
		if how.Shared == nil {
			return nil, alone
		}
		return how.Shared(n, gys)
	}
	for i, t := range results {
		if t.err == nil && t.typ.Dtype.IsFloat() {
			t.requiresGrad, t.edge, n.of = true, Edge{n, i}, t.owner
		}
	}
	return n
}

// NewPassing makes the node of a result whose gradient is x's as it comes, where x requires one.
// Only the maker of the result may call this, before it is used.
func NewPassing(name string, x, result *Tensor) {
	if !x.RequiresGrad() || result.err != nil {
		return
	}
	at := callsite.Outside()
	n := &Node{at: &at, of: result.owner, rare: &rare{name: name, outs: []kernels.Type{*result.typ}, next: []Edge{x.edge}}}
	result.requiresGrad, result.edge = true, Edge{Node: n}
}

// run computes the gradients of the node's inputs from those of its results (nil: none). The caller
// keeps gys and must free what it gets.
func (n *Node) run(gys []*Tensor, how Pull) ([]*Tensor, error) {
	r := n.rare
	switch {
	case n.fn != nil && r != nil && r.gather != nil:
		return r.gather.backward(n, gys[0], how.Retain)
	case n.fn != nil:
		out := make([]*Tensor, len(n.Next()))
		return out, n.backward(gys, how.Retain, false, out)
	case r.hook != nil:
		return nil, r.hook(gys)
	case r.pull != nil:
		return r.pull(gys, how)
	}
	out := make([]*Tensor, len(gys)) // a source passes on what it is given
	for i, g := range gys {
		if g == nil {
			continue
		}
		s, err := g.share()
		if err != nil {
			freeAll(out)
			return nil, err
		}
		out[i] = s
	}
	return out, nil
}

func freeAll(ts []*Tensor) {
	for _, t := range ts {
		t.free()
	}
}

// Walk visits every node that gradients reach which enter the graph at these edges, once each, in a
// fixed order.
func Walk(from []Edge, visit func(*Node)) {
	var few [16]*Node
	seen, many := few[:0], map[*Node]struct{}(nil)
	enter := func(n *Node) {
		if n == nil {
			return
		}
		if many == nil && slices.Contains(seen, n) {
			return
		}
		if many == nil && len(seen) == cap(few[:]) {
			many = make(map[*Node]struct{}, 4*len(few))
			for _, m := range seen {
				many[m] = struct{}{}
			}
		}
		if many != nil {
			if _, twice := many[n]; twice {
				return
			}
			many[n] = struct{}{}
		}
		seen = append(seen, n)
	}
	for _, e := range from {
		enter(e.Node)
	}
	for i := 0; i < len(seen); i++ {
		visit(seen[i])
		for _, e := range seen[i].Next() {
			enter(e.Node)
		}
	}
}

// EdgesOf is where gradients of these tensors go, one edge per tensor.
func EdgesOf(tensors ...*Tensor) []Edge {
	es := make([]Edge, len(tensors))
	for i, t := range tensors {
		if t != nil {
			es[i] = t.edge
		}
	}
	return es
}
