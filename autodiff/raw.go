package autodiff

import (
	"fmt"
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

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
	t.put(b)
	_ = old.Release() // the tensor's own reference to the old value
}
