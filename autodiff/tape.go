package autodiff

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// Edge says where a gradient goes: to result Slot of the function that Node records. The zero Edge goes nowhere.
type Edge struct {
	Node *Node
	Slot int
}

// Node is a recorded call on the tape: the gradients of its results come in, those of its inputs leave along Next. A leaf
// has no backward: it is where gradients accumulate. Package ctx makes nodes of its own for what crosses between workers.
type Node struct {
	name   string
	next   []Edge
	outs   []kernels.Type // types of the results, hence of the gradients that come in
	leaf   *Tensor
	took   time.Duration // the call; 0 where it was not timed
	at     *Site         // where the user called the function; nil where that is not known
	of     *Arena        // that the results belong to
	call   *call
	gather *gather                                            // with a call: its one gradient is sparse
	hook   func(grads []*Tensor) error                        // a sink's
	pull   func(grads []*Tensor, how Pull) ([]*Tensor, error) // a copy's or checkpoint's: the gradients of the inputs, which the caller must free

	hooks atomic.Pointer[[]*hook] // never changed, only replaced
}

// Took is how long the call took, 0 where nobody measured: see [Arena.Time].
func (n *Node) Took() time.Duration { return n.took }

// Site is where the user called the function; zero for what was not a function's call.
func (n *Node) Site() Site {
	if n.at == nil {
		return Site{}
	}
	return *n.at
}

// Name is the function's name.
func (n *Node) Name() string { return n.name }

// Next is where the gradients of the inputs go, one edge per input.
func (n *Node) Next() []Edge { return n.next }

// Results are the types of the function's results.
func (n *Node) Results() []kernels.Type { return n.outs }

// Leaf is the tensor whose gradient accumulates here, nil for a function.
func (n *Node) Leaf() *Tensor { return n.leaf }

// NewSource makes a node without results of its own in this worker's graph: gradients of tensors arrive from elsewhere and
// leave along the tensors' edges. It is what ctx calls a send function. Gradients for it are given to [Task.Start].
func NewSource(name string, tensors []*Tensor) *Node {
	n := &Node{name: name, outs: typesOf(tensors), next: make([]Edge, len(tensors))}
	for i, t := range tensors {
		n.next[i] = t.edge
	}
	return n
}

func typesOf(tensors []*Tensor) []kernels.Type {
	types := make([]kernels.Type, len(tensors))
	for i, t := range tensors {
		types[i] = t.typ
	}
	return types
}

// NewSink makes a node at which gradients leave this worker: take gets one gradient per tensor, nil for none, valid during the
// call. The float tensors become its results: gradients of what is computed from them arrive at the node. It is what ctx
// calls a recv function. Only the maker of the tensors may call this, before they are used; requires says which of them need a gradient.
func NewSink(name string, tensors []*Tensor, requires []bool, take func(grads []*Tensor) error) *Node {
	n := &Node{name: name, outs: typesOf(tensors), hook: take}
	for i, t := range tensors {
		if requires[i] && t.err == nil && t.typ.Dtype.IsFloat() {
			t.requiresGrad, t.edge = true, Edge{n, i}
		}
	}
	return n
}

// run computes the gradients of the node's inputs from those of its results (nil: none). The caller keeps gys and must free
// what it gets.
func (n *Node) run(gys []*Tensor, how Pull) ([]*Tensor, error) {
	if n.hook != nil {
		return nil, n.hook(gys)
	}
	if n.pull != nil {
		return n.pull(gys, how)
	}
	if n.call == nil { // a source passes on what it is given
		out := make([]*Tensor, len(gys))
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
	if n.gather != nil {
		return n.gather.backward(n.call, gys[0], how.Retain)
	}
	return n.call.backward(gys, len(n.next), how.Retain)
}

// call is what a recorded call keeps for its backward.
type call struct {
	node *Node // whose it is
	fn   *compiled
	dev  device.Device

	mu    sync.Mutex
	saved []*device.Buffer // one reference each: the inputs that are read, then the kept results
	gone  bool
}

func (k *call) free() {
	k.mu.Lock()
	saved := k.saved
	k.saved, k.gone = nil, true
	k.mu.Unlock()
	releaseAll(saved)
}

// hold appends references to the saved values to held, so that a run cannot lose them.
func (k *call) hold(held []*device.Buffer) ([]*device.Buffer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.gone {
		return held, fmt.Errorf("%s: %w", k.fn.name, ErrGraphFreed)
	}
	for _, b := range k.saved {
		held = append(held, b.Retain())
	}
	return held, nil
}

func (k *call) backward(gys []*Tensor, inputs int, retain bool) ([]*Tensor, error) {
	mask := uint64(0)
	for i, g := range gys {
		if g != nil {
			mask |= 1 << i
		}
	}
	out := make([]*Tensor, inputs)
	if mask == 0 {
		if !retain {
			k.free()
		}
		return out, nil
	}
	p, err := k.fn.backward(mask)
	if err != nil {
		return nil, err
	}
	var few [6]*device.Buffer
	in, err := k.hold(few[:0])
	defer func() { releaseAll(in) }()
	if err != nil {
		return nil, err
	}
	for _, g := range gys {
		if g == nil {
			continue
		}
		b, err := g.acquire()
		if err != nil {
			return nil, err
		}
		in = append(in, b)
	}
	var some [4]*device.Buffer
	bufs := append(some[:0], make([]*device.Buffer, len(p.to))...)
	if err := p.prog.Run(k.dev, in, bufs); err != nil {
		return nil, err
	}
	for i, to := range p.to {
		out[to] = manual(p.prog.Types()[i], bufs[i])
	}
	if !retain {
		k.free()
	}
	return out, nil
}

func freeAll(ts []*Tensor) {
	for _, t := range ts {
		t.free()
	}
}
