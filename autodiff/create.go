package autodiff

import (
	"fmt"
	"math/rand/v2"
	"runtime"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/backend"
)

// New copies data, in row-major order, into a tensor of nobody's on the CPU. Without a shape it is
// a vector.
func New[T device.Number](data []T, shape ...int) *Tensor {
	s := device.Shape(shape).Clone()
	if len(shape) == 0 {
		s = device.Shape{len(data)}
	}
	if err := s.Check(); err != nil {
		return failed(opError("New", err))
	}
	if s.Elems() != len(data) {
		return failed(opError("New", fmt.Errorf("%w: %d elements do not fill %v, which has %d", device.ErrBadShape, len(data), s, s.Elems())))
	}
	return create(kernels.Type{Dtype: device.DtypeOf[T](), Shape: s}, device.Bytes(data))
}

// Scalar is a tensor without axes.
func Scalar[T device.Number](v T) *Tensor {
	return create(kernels.Type{Dtype: device.DtypeOf[T]()}, device.Bytes([]T{v}))
}

// Zeros is a tensor of zeros on the CPU.
func Zeros(d device.Dtype, shape ...int) *Tensor { return Full(d, 0, shape...) }

// Ones is a tensor of ones on the CPU.
func Ones(d device.Dtype, shape ...int) *Tensor { return Full(d, 1, shape...) }

// Full is a tensor with every element v, on the CPU.
func Full(d device.Dtype, v float64, shape ...int) *Tensor {
	t := kernels.Type{Dtype: d, Shape: device.Shape(shape).Clone()}
	if err := t.Shape.Check(); err != nil {
		return failed(opError("Full", err))
	}
	buf, err := fill(device.Host(), t, v)
	if err != nil {
		return failed(opError("Full", err))
	}
	return newTensor(t, buf, nil)
}

// Rand is float32, uniform over [0, 1), on the CPU, from the process's random source.
func Rand(shape ...int) *Tensor {
	return random(shape, func() float64 { return float64(rand.Float32()) }) // a float64 could round up to 1
}

// RandFrom is Rand from a source of the caller's.
func RandFrom(src *rand.Rand, shape ...int) *Tensor {
	return random(shape, func() float64 { return float64(src.Float32()) })
}

// NormalFrom is float32, normal with mean 0 and the given standard deviation.
func NormalFrom(src *rand.Rand, std float64, shape ...int) *Tensor {
	return random(shape, func() float64 { return std * src.NormFloat64() })
}

func random(shape []int, next func() float64) *Tensor {
	s := device.Shape(shape).Clone()
	if err := s.Check(); err != nil {
		return failed(opError("Rand", err))
	}
	t := kernels.Type{Dtype: device.Float32, Shape: s}
	buf, err := device.Host().Alloc(t.Bytes())
	if err != nil {
		return failed(opError("Rand", err))
	}
	if raw, err := buf.Host(); err == nil { // it is the host's
		for i, data := 0, device.As[float32](raw); i < len(data); i++ {
			data[i] = float32(next())
		}
		runtime.KeepAlive(buf)
	}
	return newTensor(t, buf, nil)
}

func create(t kernels.Type, raw []byte) *Tensor {
	host := device.Host()
	buf, err := host.Alloc(len(raw))
	if err == nil {
		err = host.Upload(buf, 0, raw)
	}
	if err != nil {
		return failed(opError("New", err))
	}
	return newTensor(t, buf, nil)
}

// fill makes a buffer of one repeated value.
func fill(dev device.Device, t kernels.Type, v float64) (*device.Buffer, error) {
	b, err := backend.For(dev)
	if err != nil {
		return nil, err
	}
	k, err := b.Prepare(kernels.Fill{Type: t, C: v}, nil)
	if err != nil {
		return nil, err
	}
	buf, err := dev.Alloc(t.Bytes())
	if err != nil {
		return nil, err
	}
	if err := k.Run([]*device.Buffer{buf}, nil); err != nil {
		_ = buf.Release() // ours alone
		return nil, err
	}
	return buf, nil
}

// Values copies the elements to the host, in row-major order. T must be the tensor's dtype.
func Values[T device.Number](t *Tensor) ([]T, error) {
	if err := t.Err(); err != nil {
		return nil, opError("Values", err)
	}
	if want := device.DtypeOf[T](); want != t.typ.Dtype {
		return nil, opError("Values", fmt.Errorf("%w: asked for %v of a tensor of %v", ErrDtype, want, *t.typ))
	}
	buf, err := t.acquire()
	if err != nil {
		return nil, opError("Values", err)
	}
	defer buf.Release() //nolint:errcheck // ours
	out := make([]T, t.typ.Shape.Elems())
	if err := buf.Device().Download(device.Bytes(out), buf, 0); err != nil {
		return nil, err
	}
	return out, nil
}

// Item is the value of a tensor with one element, of any dtype.
func (t *Tensor) Item() (float64, error) {
	if err := t.Err(); err != nil {
		return 0, opError("Item", err)
	}
	if n := t.typ.Shape.Elems(); n != 1 {
		return 0, opError("Item", fmt.Errorf("%w: %v has %d elements", ErrNotScalar, *t.typ, n))
	}
	switch t.typ.Dtype {
	case device.Float32:
		return first[float32](t)
	case device.Float64:
		return first[float64](t)
	case device.Int32:
		return first[int32](t)
	}
	return first[int64](t)
}

func first[T device.Number](t *Tensor) (float64, error) {
	v, err := Values[T](t)
	if err != nil {
		return 0, err
	}
	return float64(v[0]), nil
}

// ZerosLike is nobody's tensor of zeros with x's dtype and shape, on x's device.
func ZerosLike(x *Tensor) *Tensor { return FullLike(x, 0) }

// FullLike is nobody's tensor with every element v, and with x's dtype and shape, on x's device.
func FullLike(x *Tensor, v float64) *Tensor {
	if err := x.Err(); err != nil {
		return failed(opError("FullLike", err))
	}
	buf, err := fill(x.dev, *x.typ, v)
	if err != nil {
		return failed(opError("FullLike", err))
	}
	return newTensor(*x.typ, buf, nil)
}
