package nn

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
)

// Uniform is a tensor of dtype d on the CPU, uniform from low to high.
func Uniform(src *rand.Rand, d device.Dtype, low, high float64, shape ...int) *autodiff.Tensor {
	return draw(src, d, shape, func() float64 { return low + (high-low)*src.Float64() })
}

// Normal is a tensor of dtype d on the CPU, normal with the given mean and standard deviation.
func Normal(src *rand.Rand, d device.Dtype, mean, std float64, shape ...int) *autodiff.Tensor {
	return draw(src, d, shape, func() float64 { return mean + std*src.NormFloat64() })
}

// KaimingUniform is uniform within ±√(6/((1+a²)·in)) for weights (…, in, out) before a leaky ReLU
// of slope a (He et al., arXiv:1502.01852). With a = √5, PyTorch's choice for its linear layers,
// that is ±1/√in.
func KaimingUniform(src *rand.Rand, d device.Dtype, a float64, shape ...int) *autodiff.Tensor {
	in, _, err := fans(shape)
	if err != nil {
		return autodiff.Failed(err)
	}
	return within(src, d, math.Sqrt(6/((1+a*a)*in)), shape)
}

// XavierUniform is uniform within ±gain·√(6/(in+out)) for weights (…, in, out) (Glorot and Bengio,
// AISTATS 2010).
func XavierUniform(src *rand.Rand, d device.Dtype, gain float64, shape ...int) *autodiff.Tensor {
	in, out, err := fans(shape)
	if err != nil {
		return autodiff.Failed(err)
	}
	return within(src, d, gain*math.Sqrt(6/(in+out)), shape)
}

// Zeros is a tensor of zeros on the CPU.
func Zeros(d device.Dtype, shape ...int) *autodiff.Tensor { return autodiff.Zeros(d, shape...) }

// Ones is a tensor of ones on the CPU.
func Ones(d device.Dtype, shape ...int) *autodiff.Tensor { return autodiff.Ones(d, shape...) }

// within is uniform over [−bound, bound); a fan of 0 has no elements to bound.
func within(src *rand.Rand, d device.Dtype, bound float64, shape []int) *autodiff.Tensor {
	return Uniform(src, d, -bound, bound, shape...)
}

// fans is how many inputs and outputs a weight connects.
func fans(shape []int) (in, out float64, err error) {
	if len(shape) < 2 {
		return 0, 0, fmt.Errorf("%w: weights need two or more axes (…, in, out), got %v", device.ErrBadShape, device.Shape(shape))
	}
	return float64(shape[len(shape)-2]), float64(shape[len(shape)-1]), nil
}

// ErrNoSource is of random values that were asked of a nil *rand.Rand.
var ErrNoSource = errors.New("no source of random numbers")

// draw calls next, which reads src, for each element in order.
func draw(src *rand.Rand, d device.Dtype, shape []int, next func() float64) *autodiff.Tensor {
	if src == nil {
		return autodiff.Failed(fmt.Errorf("%w: the *rand.Rand is nil", ErrNoSource))
	}
	s := device.Shape(shape).Clone()
	if err := s.Check(); err != nil {
		return autodiff.Failed(err)
	}
	if s.Elems() > maxDrawn {
		return autodiff.Failed(fmt.Errorf("%w: %v has more than %d elements", device.ErrBadShape, s, maxDrawn))
	}
	switch d {
	case device.Float32:
		return fill[float32](s, next)
	case device.Float64:
		return fill[float64](s, next)
	}
	return autodiff.Failed(fmt.Errorf("%w: random values are float32 or float64, not %v", autodiff.ErrDtype, d))
}

// maxDrawn bounds what is drawn one number at a time.
const maxDrawn = 1 << 32

func fill[T device.Float](s device.Shape, next func() float64) *autodiff.Tensor {
	data := make([]T, s.Elems())
	for i := range data {
		data[i] = T(next())
	}
	if len(s) == 0 {
		return autodiff.Scalar(data[0])
	}
	return autodiff.New(data, s...)
}
