package autodiff

import (
	"fmt"
	"slices"

	"github.com/weft-project/weft/autodiff/internal/rows"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/callsite"
	"github.com/weft-project/weft/kernels"
)

// To copies a tensor to another device; it is x itself where it lies there already. Gradients are
// copied back.
func To(x *Tensor, dev device.Device) *Tensor {
	if err := x.Err(); err != nil {
		return failed(opError("To", err))
	}
	if err := device.Given(dev); err != nil {
		return failed(opError("To", err))
	}
	if x.dev == dev {
		return x
	}
	t, err := x.copyTo(dev)
	if err != nil {
		return failed(opError("To", err))
	}
	if t = t.owned("To", x.owner); t.err != nil || !x.requiresGrad {
		return t
	}
	home := x.dev
	at := callsite.Outside()
	n := &Node{at: &at, of: x.owner, rare: &rare{name: "to " + dev.ID().String(), outs: []kernels.Type{*x.typ}, next: []Edge{x.edge}}}
	n.rare.pull = func(gys []*Tensor, _ Pull) ([]*Tensor, error) {
		if gys[0] == nil {
			return []*Tensor{nil}, nil
		}
		g, err := gys[0].copyTo(home)
		return []*Tensor{g}, err
	}
	t.requiresGrad, t.edge = true, Edge{Node: n}
	return t
}

// copyTo is a transient with the same value on another device; sparse where t is.
func (t *Tensor) copyTo(dev device.Device) (*Tensor, error) {
	if t.sparse {
		return t.copyRowsTo(dev)
	}
	src, err := t.acquire()
	if err != nil {
		return nil, err
	}
	defer src.Release() //nolint:errcheck // ours
	dst, err := copyOf(src, dev)
	if err != nil {
		return nil, err
	}
	return manual(*t.typ, dst), nil
}

func (t *Tensor) copyRowsTo(dev device.Device) (*Tensor, error) {
	r, err := t.acquireRows()
	if err != nil {
		return nil, err
	}
	defer r.Release()
	ids, err := copyOf(r.IDs, dev)
	if err != nil {
		return nil, err
	}
	values, err := copyOf(r.Values, dev)
	if err != nil {
		_ = ids.Release() // ours alone
		return nil, err
	}
	return sparse(*t.typ, &rows.Rows{IDs: ids, Values: values, N: r.N, Distinct: r.Distinct}), nil
}

func copyOf(src *device.Buffer, dev device.Device) (*device.Buffer, error) {
	alloc := dev.Alloc
	if a, ok := dev.(*device.Accelerator); ok { // other memory may wait for what another pass still does with it
		alloc = func(n int) (*device.Buffer, error) { return a.AllocFor(n, device.ForUpload{}) }
	}
	dst, err := alloc(src.Len())
	if err != nil {
		return nil, err
	}
	if err := device.Copy(dst, src); err != nil {
		_ = dst.Release() // ours alone
		return nil, err
	}
	return dst, nil
}

// rawNames are what files of safetensors call the dtypes.
var rawNames = map[device.Dtype]string{device.Float32: "F32", device.Float64: "F64", device.Int32: "I32", device.Int64: "I64"}

// Raw is a copy of the value as files hold it: little-endian, row by row. The dtype is in the words
// of safetensors: F32, F64, I32 or I64.
func (t *Tensor) Raw() (dtype string, shape []int, data []byte, err error) {
	b, err := t.acquire()
	if err != nil {
		return "", nil, nil, opError("Raw", err)
	}
	defer b.Release() //nolint:errcheck // ours
	data = make([]byte, t.typ.Bytes())
	if err := b.Device().Download(data, b, 0); err != nil {
		return "", nil, nil, opError("Raw", err)
	}
	return rawNames[t.typ.Dtype], t.Shape(), data, nil
}

// FromRaw is nobody's tensor on the CPU with a value as [Tensor.Raw] gives it.
func FromRaw(dtype string, shape []int, data []byte) *Tensor {
	for d, name := range rawNames {
		if name != dtype {
			continue
		}
		t := kernels.Type{Dtype: d, Shape: slices.Clone(shape)}
		if err := t.Shape.Check(); err != nil {
			return failed(opError("FromRaw", err))
		}
		if len(data) != t.Bytes() {
			return failed(opError("FromRaw", fmt.Errorf("%w: %d bytes where %v needs %d", device.ErrBounds, len(data), t, t.Bytes())))
		}
		return create(t, data)
	}
	return failed(opError("FromRaw", fmt.Errorf("%w: %.20q; expected F32, F64, I32 or I64", ErrDtype, dtype)))
}

// Assign gives leaves other values, as loading does: to[i] that of values[i], copied to its device.
// Whoever holds the old value, a forward under way or the tape, keeps it. On an error no leaf has
// changed.
func Assign(to, values []*Tensor) error {
	if len(to) != len(values) {
		return opError("Assign", fmt.Errorf("%w: %d values for %d tensors", ErrFunction, len(values), len(to)))
	}
	fresh := make([]*device.Buffer, 0, len(to))
	for i, t := range to {
		b, err := t.assignable(values[i])
		if err != nil {
			releaseAll(fresh)
			return opError("Assign", fmt.Errorf("tensor %d: %w", i, err))
		}
		fresh = append(fresh, b)
	}
	for i, t := range to {
		t.replace(fresh[i])
	}
	return nil
}

// assignable is a copy of a value for t.
func (t *Tensor) assignable(value *Tensor) (*device.Buffer, error) {
	if err := t.Err(); err != nil {
		return nil, err
	}
	if err := value.Err(); err != nil {
		return nil, err
	}
	switch {
	case !t.IsLeaf() || t.sparse:
		return nil, fmt.Errorf("%w: it is a %v", ErrNotLeaf, t)
	case !t.typ.Equal(*value.typ):
		return nil, fmt.Errorf("%w: a value %v for a tensor %v", ErrDtype, *value.typ, *t.typ)
	}
	have, err := t.acquire()
	if err != nil {
		return nil, err
	}
	defer have.Release() //nolint:errcheck // ours
	b, err := value.acquire()
	if err != nil {
		return nil, err
	}
	defer b.Release() //nolint:errcheck // ours
	return copyOf(b, t.dev)
}

// replace takes over a reference to the new value.
func (t *Tensor) replace(b *device.Buffer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.buf
	if old == nil { // freed meanwhile
		_ = b.Release()
		return
	}
	t.forgetRounded()
	if t.owner == nil {
		b.Disown()
	}
	t.setBuffer(b)
	_ = old.Release() // the tensor's own reference to the old value
}

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
