package autodiff

import (
	"fmt"
	"slices"

	"github.com/weft-project/weft/autodiff/internal/callsite"
	"github.com/weft-project/weft/autodiff/internal/rows"
	"github.com/weft-project/weft/device"
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
