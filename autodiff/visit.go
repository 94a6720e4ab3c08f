package autodiff

import (
	"fmt"
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// Visit says how the values of some tensors come and go: see [ComeAndGo].
type Visit struct {
	Name   string        // of their node in the graph, and in errors
	Device device.Device // where their values are to lie
	// Bring has the value of one of them come ([Tensor.Put]), or says why it cannot be had. It is
	// called where something reads the tensor while it has none, also in a backward.
	Bring func(t *Tensor) error
	// Take gets the gradients of a backward when all have come: one for each tensor, nil for none.
	// They are valid during the call.
	Take func(grads []*Tensor) error
}

// ComeAndGo makes parameters into tensors whose values come and go, as those of a layer that is
// spread over several workers. They lose their values; [Tensor.Put] brings others, and takes them
// away. A function that reads them does not keep their values for its backward, which reads them
// anew. No table has their gradients: Take gets them. They are no leaves any more, so that no
// optimizer steps them. What is computed from them alone is kept as anything else is.
//
// They must be leaves of nobody's that require gradients, and that nobody uses meanwhile. Where one
// is not, none changes.
func ComeAndGo(v Visit, tensors ...*Tensor) error {
	types := make([]kernels.Type, len(tensors))
	for i, t := range tensors {
		switch err := t.Err(); {
		case err != nil:
			return opError("ComeAndGo", err)
		case !t.isParameter() || t.owner != nil || t.IsStepped() || slices.Contains(tensors[:i], t):
			return opError("ComeAndGo", fmt.Errorf("%w: tensor %d is a %v; expected a parameter of no optimizer's, pass's or arena's, given once", ErrNotLeaf, i, t))
		}
		types[i] = *t.typ
	}
	if err := device.Given(v.Device); err != nil {
		return opError("ComeAndGo", err)
	}
	n := &Node{rare: &rare{name: v.Name, outs: types, hook: v.Take, visit: &v}}
	for i, t := range tensors {
		t.free()
		t.dev, t.bound, t.edge = v.Device, false, Edge{n, i}
	}
	return nil
}

// visit is how the value comes and goes, nil where it does not.
func (t *Tensor) visit() *Visit {
	if n := t.edge.Node; n != nil && n.rare != nil {
		return n.rare.visit
	}
	return nil
}

// Put is the value of a tensor whose values come and go ([ComeAndGo]) from now on; nil for none. It
// takes over the caller's reference. Who has acquired the value before keeps it.
func (t *Tensor) Put(b *device.Buffer) error {
	v := t.visit()
	switch {
	case v == nil:
		return opError("Put", fmt.Errorf("%w: the value of %v does not come and go", ErrFunction, t))
	case b != nil && (b.Len() != t.typ.Bytes() || b.Device() != t.dev):
		return opError("Put", fmt.Errorf("%w: %d bytes on %v for %v", device.ErrBounds, b.Len(), b.Device().ID(), t))
	}
	t.mu.Lock()
	old := t.buf
	t.setBuffer(b)
	t.mu.Unlock()
	if old != nil {
		_ = old.Release() // the tensor's own reference
	}
	return nil
}

// present is a reference to the value, if it is there.
func (t *Tensor) present() *device.Buffer {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.buf == nil {
		return nil
	}
	return t.buf.Retain()
}

// brought acquires a value that comes and goes.
func (t *Tensor) brought(v *Visit) (*device.Buffer, error) {
	if b := t.present(); b != nil {
		return b, nil
	}
	if err := v.Bring(t); err != nil {
		return nil, err
	}
	if b := t.present(); b != nil {
		return b, nil
	}
	return nil, fmt.Errorf("%w: the value of %v did not come", ErrFreed, t)
}

// saveInput keeps what the backward is to read of an input.
func (n *Node) saveInput(t *Tensor, value *device.Buffer) {
	if t.visit() == nil {
		n.save(value.Retain())
		return
	}
	n.extra().later = append(n.rare.later, t)
	n.save(nil)
}

// recall fills in the values that were not kept.
func (n *Node) recall(held []*device.Buffer) error {
	if n.rare == nil {
		return nil
	}
	for _, t := range n.rare.later {
		b, err := t.acquire()
		if err != nil {
			return err
		}
		held[slices.Index(held, nil)] = b
	}
	return nil
}
