package autodiff

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/weft-project/weft/autodiff/internal/rows"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// Tensor is a value on a device: contiguous, row-major. A nil *Tensor is an absent one.
type Tensor struct {
	typ   *kernels.Type // never changed
	dev   device.Device
	err   error  // why there is no value
	owner *Arena // nil: nobody
	edge  Edge   // where a gradient of this tensor goes; Node is nil without one

	requiresGrad bool
	sparse       bool // a gradient that is kept as rows
	bound        bool // the value lies in one piece of memory with a node, whose history it keeps alive

	mu   sync.Mutex
	buf  *device.Buffer // one reference; nil once freed, and where sparse. Apply may replace it, or claim it. Atomic to who does not hold the lock.
	rows *rows.Rows     // where sparse; nil once freed
}

// newTensor takes over the reference to buf that the caller holds. For nobody (owner nil) the
// buffer is left to the collector.
func newTensor(typ kernels.Type, buf *device.Buffer, owner *Arena) *Tensor {
	t := &Tensor{typ: &typ, dev: buf.Device(), buf: buf, owner: owner}
	if owner == nil {
		buf.Disown()
		return t
	}
	if err := owner.adopt(t, typ.Bytes()); err != nil {
		t.free()
		t.err = opError("", err)
	}
	return t
}

// manual is a tensor whose holder must call free: a gradient on its way.
func manual(typ kernels.Type, buf *device.Buffer) *Tensor {
	return &Tensor{typ: &typ, dev: buf.Device(), buf: buf}
}

// Transient is a tensor that nobody frees but its holder, with [Release]: a gradient on its way
// between engines. It takes over the caller's reference to buf.
func Transient(typ kernels.Type, buf *device.Buffer) *Tensor { return manual(typ, buf) }

// Release frees transient tensors; nil ones are skipped.
func Release(ts ...*Tensor) { freeAll(ts) }

// failed is a tensor that only carries an error.
func failed(err error) *Tensor { return &Tensor{err: err, typ: &noType} }

var noType kernels.Type

// Failed is a tensor without a value, for functions that return tensors and meet an error, which is
// to name the function. It gets the user's line.
func Failed(err error) *Tensor { return failed(opError("", err)) }

// Wrap makes a tensor of typ over a buffer that already holds the value. It takes over the caller's
// reference. With an owner the arena frees it; without one the collector does.
func Wrap(typ kernels.Type, buf *device.Buffer, owner *Arena) *Tensor {
	if buf.Len() != typ.Bytes() {
		_ = buf.Release() // the reference we were given
		return failed(opError("wrap", fmt.Errorf("%w: %d bytes where %v needs %d", device.ErrBounds, buf.Len(), typ, typ.Bytes())))
	}
	return newTensor(typ, buf, owner)
}

// Err is why the tensor has no value; nil when it has one.
func (t *Tensor) Err() error {
	if t == nil {
		return ErrNil // who has the op's name adds it, and the line
	}
	return t.err
}

// Type is the dtype and shape; zero for an absent tensor or one without a value.
func (t *Tensor) Type() kernels.Type {
	if t == nil {
		return kernels.Type{}
	}
	return *t.typ
}

// Shape is a copy of the extents.
func (t *Tensor) Shape() device.Shape { return t.Type().Shape.Clone() }

// Dtype is the type of the elements.
func (t *Tensor) Dtype() device.Dtype { return t.Type().Dtype }

// Bytes is the size of the value, which of a sparse gradient is that of its rows and indices; 0
// without a value.
func (t *Tensor) Bytes() int {
	if t == nil || t.err != nil {
		return 0
	}
	return t.held()
}

// Device is where the value lies.
func (t *Tensor) Device() device.ID {
	if t == nil || t.dev == nil {
		return device.ID{}
	}
	return t.dev.ID()
}

// Owner is the arena that frees the tensor, nil for nobody's.
func (t *Tensor) Owner() *Arena {
	if t == nil {
		return nil
	}
	return t.owner
}

// RequiresGrad says whether gradients are computed for this tensor.
func (t *Tensor) RequiresGrad() bool { return t != nil && t.requiresGrad }

// IsLeaf says that no function made this tensor, so that its gradient is a result of the backward.
func (t *Tensor) IsLeaf() bool { return t == nil || t.edge.Node == nil || t.edge.Node.Leaf() == t }

// RequireGrad makes a leaf a parameter: gradients are computed for it. Call it before the tensor is
// used. It returns t, or a tensor that carries the error: a function's result has its gradient from
// its inputs, and is no leaf.
func (t *Tensor) RequireGrad() *Tensor {
	switch {
	case t == nil:
		return failed(opError("RequireGrad", ErrNil))
	case !t.IsLeaf():
		return failed(opError("RequireGrad", fmt.Errorf("%w: it is a %v; OnGrad shows its gradient, and Detach makes a leaf of its value", ErrNotLeaf, t)))
	case t.err != nil || t.requiresGrad:
		return t
	case !t.typ.Dtype.IsFloat():
		return failed(opError("RequireGrad", fmt.Errorf("%w: %v has no gradients; only float32 and float64 have", ErrDtype, *t.typ)))
	}
	t.requiresGrad = true
	t.edge = Edge{Node: &Node{rare: &rare{leaf: t, name: "accumulate", outs: []kernels.Type{*t.typ}}}}
	return t
}

// MarkStepped notes that an optimizer steps the leaf t, which requires gradients.
func (t *Tensor) MarkStepped() {
	if t.RequiresGrad() && t.IsLeaf() {
		t.edge.Node.rare.stepped.Store(true)
	}
}

// IsStepped says whether there is, or was, an optimizer that steps the leaf t.
func (t *Tensor) IsStepped() bool {
	return t.RequiresGrad() && t.IsLeaf() && t.edge.Node.rare.stepped.Load()
}

// Detach is the same value without a history: gradients stop here. It belongs to the pass or arena
// of t and is freed with that; see [Tensor.Copy].
func (t *Tensor) Detach() *Tensor {
	d, err := t.share()
	if err != nil {
		return failed(opError("Detach", err))
	}
	if t.owner == nil {
		return d.owned("Detach", nil)
	}
	d.owner = t.owner
	if err := t.owner.adopt(d, 0); err != nil {
		d.free()
		return failed(opError("Detach", err))
	}
	return d
}

// Copy is a copy of the value that has no history and belongs to nobody: it outlives the pass or
// arena of t, and may be mixed with tensors of others and sent to other workers. No gradient comes
// back through it.
func (t *Tensor) Copy() *Tensor {
	err := t.Err()
	if err == nil {
		var c *Tensor
		if c, err = t.copyTo(t.dev); err == nil {
			return c.owned("Copy", nil)
		}
	}
	return failed(opError("Copy", err))
}

// String prints the type, the device and what the tensor is.
func (t *Tensor) String() string {
	switch {
	case t == nil:
		return "tensor(nil)"
	case t.err != nil:
		return fmt.Sprintf("tensor(error: %v)", t.err)
	}
	s := fmt.Sprintf("tensor %v on %v", t.typ, t.dev.ID())
	if t.sparse {
		s += ", sparse"
	}
	if t.edge.Node != nil && t.edge.Node.Leaf() == nil {
		return s + " from " + t.edge.Node.Name()
	}
	if t.requiresGrad {
		return s + ", requires grad"
	}
	return s
}

// acquire gives a reference to the current value, which the caller must release. The value under it
// does not change.
func (t *Tensor) acquire() (*device.Buffer, error) {
	if t == nil {
		return nil, t.Err()
	}
	if b := (*device.Buffer)(atomic.LoadPointer(t.bufferAddr())); b != nil && b.TryRetain() {
		return b, nil
	}
	if t.err != nil {
		return nil, t.err
	}
	if t.sparse {
		return t.densified()
	}
	if v := t.visit(); v != nil {
		return t.brought(v)
	}
	if b := t.present(); b != nil {
		return b, nil
	}
	return nil, t.errFreed()
}

// bufferAddr is where buf lies.
func (t *Tensor) bufferAddr() *unsafe.Pointer { return (*unsafe.Pointer)(unsafe.Pointer(&t.buf)) }

// setBuffer replaces the buffer. The caller holds the lock, and then the reference to the old one.
func (t *Tensor) setBuffer(b *device.Buffer) { atomic.StorePointer(t.bufferAddr(), unsafe.Pointer(b)) }

func (t *Tensor) errFreed() error {
	return t.owner.freedError(t.typ.String(), t.computedAt()) // who has the op's name adds it, and the line
}

// Acquire gives a reference to the value's buffer, for code that moves bytes. Release it. The bytes
// are read-only. Of a sparse gradient, and of what is small, it may be a copy.
func (t *Tensor) Acquire() (*device.Buffer, error) {
	b, err := t.detached()
	if err != nil {
		err = opError("Acquire", err)
	}
	return b, err
}

// detached is acquire for who may keep the value for long: it does not keep the tensor's history
// alive.
func (t *Tensor) detached() (*device.Buffer, error) {
	b, err := t.acquire()
	if err != nil || !t.bound {
		return b, err
	}
	defer b.Release() //nolint:errcheck // ours
	return copyOf(b, t.dev)
}

// free drops the value.
func (t *Tensor) free() {
	if t == nil {
		return
	}
	t.mu.Lock()
	buf, r := t.buf, t.rows
	t.setBuffer(nil)
	t.rows = nil
	t.mu.Unlock()
	if buf != nil {
		_ = buf.Release() // the tensor's own reference
	}
	if r != nil {
		r.Release()
	}
}
