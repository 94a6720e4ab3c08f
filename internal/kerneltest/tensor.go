package kerneltest

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// Tensor is a value on the host. Every number is held as float64, so integers are exact up to 2⁵³.
type Tensor struct {
	kernels.Type
	V []float64
}

// New makes a tensor and rounds the values to its dtype.
func New(d device.Dtype, s device.Shape, v ...float64) Tensor {
	t := Tensor{kernels.Type{Dtype: d, Shape: s}, make([]float64, s.Elems())}
	for k := range t.V {
		t.V[k] = round(d, v[k%len(v)])
	}
	return t
}

// round is the nearest number of a dtype; integers drop the fraction and stay in range.
func round(d device.Dtype, v float64) float64 {
	switch d {
	case device.Float32:
		return float64(float32(v))
	case device.BFloat16:
		return fromNarrow(toNarrow(float32(v)))
	case device.Int32, device.Int64:
		lo, hi := math.Ldexp(-1, d.Size()*8-1), math.Ldexp(1, d.Size()*8-1)-1
		if math.IsNaN(v) {
			return 0
		}
		return min(max(math.Trunc(v), lo), hi)
	}
	return v
}

// types lists the types of tensors.
func types(ts []Tensor) []kernels.Type {
	out := make([]kernels.Type, len(ts))
	for k, t := range ts {
		out[k] = t.Type
	}
	return out
}

// encode gives the bytes of a tensor.
func (t Tensor) encode() []byte {
	switch t.Dtype {
	case device.Float32:
		return encodeAs[float32](t.V)
	case device.BFloat16:
		return encodeNarrow(t.V)
	case device.Float64:
		return encodeAs[float64](t.V)
	case device.Int32:
		return encodeAs[int32](t.V)
	}
	return encodeAs[int64](t.V)
}

//go:norace
func encodeAs[T device.Number](v []float64) []byte {
	out := make([]T, len(v))
	for k, x := range v {
		out[k] = T(x)
	}
	return device.Bytes(out)
}

// decode gives the tensor of some bytes, which must be aligned.
func decode(t kernels.Type, b []byte) Tensor {
	switch t.Dtype {
	case device.Float32:
		return Tensor{t, decodeAs[float32](b)}
	case device.BFloat16:
		return Tensor{t, decodeNarrow(b)}
	case device.Float64:
		return Tensor{t, decodeAs[float64](b)}
	case device.Int32:
		return Tensor{t, decodeAs[int32](b)}
	}
	return Tensor{t, decodeAs[int64](b)}
}

//go:norace
func decodeAs[T device.Number](b []byte) []float64 {
	in := device.As[T](b)
	out := make([]float64, len(in))
	for k, x := range in {
		out[k] = float64(x)
	}
	return out
}

// Upload puts a tensor on a device; the caller releases it.
func Upload(t testing.TB, d device.Device, x Tensor) *device.Buffer { return upload(t, d, x) }

// Download is the tensor of a type that a buffer holds.
func Download(t testing.TB, d device.Device, typ kernels.Type, b *device.Buffer) Tensor {
	return decode(typ, bytesOf(t, d, b))
}

func upload(t testing.TB, d device.Device, x Tensor) *device.Buffer {
	b, err := d.Alloc(x.Bytes())
	require.NoError(t, err)
	require.NoError(t, d.Upload(b, 0, x.encode()))
	return b
}

// garbage is a buffer full of NaNs, as a result may be before it is written.
func garbage(t testing.TB, d device.Device, n int) *device.Buffer {
	b, err := d.Alloc(n)
	require.NoError(t, err)
	fill := make([]byte, n)
	for k := range fill {
		fill[k] = 0xff
	}
	require.NoError(t, d.Upload(b, 0, fill))
	return b
}

// bytesOf downloads a buffer into aligned memory.
func bytesOf(t testing.TB, d device.Device, b *device.Buffer) []byte {
	raw := device.Bytes(make([]int64, b.Len()/8+1))[:b.Len()]
	require.NoError(t, d.Download(raw, b, 0))
	return raw
}

func release(t testing.TB, bufs []*device.Buffer) {
	for _, b := range bufs {
		require.NoError(t, b.Release())
	}
}

// index splits a flat position into one per axis.
func index(flat int, s device.Shape) []int { return indexInto(make([]int, len(s)), flat, s) }

// indexInto is index into memory that is there.
//
//go:norace
func indexInto(idx []int, flat int, s device.Shape) []int {
	for k := len(s) - 1; k >= 0; k-- {
		idx[k] = flat % s[k]
		flat /= s[k]
	}
	return idx
}

// at reads the element at idx by numpy's rules: leading axes that x lacks are ignored, and extents
// of 1 repeat.
//
//go:norace
func (t Tensor) at(idx []int) float64 {
	idx = idx[len(idx)-len(t.Shape):]
	flat := 0
	for k, n := range t.Shape {
		i := idx[k]
		if n == 1 {
			i = 0
		}
		flat = flat*n + i
	}
	return t.V[flat]
}

// build makes a tensor by calling fn for each index, which is gone afterwards.
//
//go:norace
func build(t kernels.Type, fn func(idx []int) float64) Tensor {
	out, idx := Tensor{t, make([]float64, t.Shape.Elems())}, make([]int, len(t.Shape))
	for k := range out.V {
		out.V[k] = fn(indexInto(idx, k, t.Shape))
	}
	return out
}
