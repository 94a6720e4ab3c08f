package expr

import (
	"fmt"
	"runtime"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// bufferOf copies a Gorgonia value to a new buffer; the value's dtype and size must be t's.
func bufferOf(host device.Device, v gorgonia.Value, t kernels.Type) (*device.Buffer, error) {
	var raw []byte
	switch x := v.Data().(type) {
	case []float32:
		raw = device.Bytes(x)
	case []float64:
		raw = device.Bytes(x)
	case []int32:
		raw = device.Bytes(x)
	case []int64:
		raw = device.Bytes(x)
	case float32:
		raw = device.Bytes([]float32{x})
	case float64:
		raw = device.Bytes([]float64{x})
	case int32:
		raw = device.Bytes([]int32{x})
	case int64:
		raw = device.Bytes([]int64{x})
	default:
		return nil, fmt.Errorf("%w: a value of %T where %v is expected", ErrDtype, x, t)
	}
	if v.Dtype() != gorgoniaDtype(t.Dtype) || len(raw) != t.Bytes() {
		return nil, fmt.Errorf("%w: a value of %v%v where %v is expected", ErrDtype, v.Dtype(), v.Shape(), t)
	}
	b, err := host.Alloc(len(raw))
	if err != nil {
		return nil, err
	}
	if err := host.Upload(b, 0, raw); err != nil {
		_ = b.Release() // ours alone
		return nil, err
	}
	return b, nil
}

// ValueOf copies a buffer on the host to a new Gorgonia value.
func ValueOf(b *device.Buffer, t kernels.Type) (gorgonia.Value, error) {
	raw, err := b.Host()
	if err != nil {
		return nil, err
	}
	defer runtime.KeepAlive(b)
	switch t.Dtype {
	case device.Float32:
		return gorgoniaValue(append([]float32{}, device.As[float32](raw)...), t.Shape)
	case device.Float64:
		return gorgoniaValue(append([]float64{}, device.As[float64](raw)...), t.Shape)
	case device.Int32:
		return gorgoniaValue(append([]int32{}, device.As[int32](raw)...), t.Shape)
	}
	return gorgoniaValue(append([]int64{}, device.As[int64](raw)...), t.Shape)
}

// gorgoniaValue wraps elements; Gorgonia keeps scalars apart from tensors.
func gorgoniaValue[T device.Number](s []T, shape device.Shape) (gorgonia.Value, error) {
	if len(shape) > 0 {
		return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(s)), nil
	}
	switch x := any(s[0]).(type) {
	case float32:
		return gorgonia.NewF32(x), nil
	case float64:
		return gorgonia.NewF64(x), nil
	case int32:
		return gorgonia.NewI32(x), nil
	case int64:
		return gorgonia.NewI64(x), nil
	}
	return nil, fmt.Errorf("%w: %T", ErrDtype, s[0])
}
