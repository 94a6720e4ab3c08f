package nn

import (
	"math"
	"math/rand/v2"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// Conv2d correlates images (n, in, h, w) with kernels W (out, in, kh, kw) and adds B (out), which
// may be nil.
type Conv2d struct {
	W, B *autodiff.Tensor
	Over kernels.Window // without a kernel, that of W
}

// NewConv2d draws W and B uniformly within ±1/√(in·kh·kw), as PyTorch does: NewConv2d(src, 1, 16,
// kernels.Square(3, 1, 1)).
func NewConv2d(src *rand.Rand, in, out int, over kernels.Window) *Conv2d {
	bound := 1 / math.Sqrt(float64(max(in*over.Kernel[0]*over.Kernel[1], 1)))
	return &Conv2d{
		W:    Uniform(src, device.Float32, -bound, bound, out, in, over.Kernel[0], over.Kernel[1]).RequireGrad(),
		B:    Uniform(src, device.Float32, -bound, bound, out).RequireGrad(),
		Over: over,
	}
}

// Forward gives (n, out, oh, ow).
func (l *Conv2d) Forward(x *autodiff.Tensor) *autodiff.Tensor {
	return autodiff.Conv2d(x, l.W, l.B, l.Over)
}

// Params is W and, where there is one, B.
func (l *Conv2d) Params() []*autodiff.Tensor {
	if l.B == nil {
		return []*autodiff.Tensor{l.W}
	}
	return []*autodiff.Tensor{l.W, l.B}
}

// MaxPool2d is the largest element under a window over images: MaxPool2d{kernels.Square(2, 2, 0)}.
type MaxPool2d struct{ Over kernels.Window }

// Forward gives (n, channels, oh, ow).
func (l MaxPool2d) Forward(x *autodiff.Tensor) *autodiff.Tensor { return autodiff.MaxPool2d(x, l.Over) }

// Params is nothing.
func (l MaxPool2d) Params() []*autodiff.Tensor { return nil }

// AvgPool2d is the mean under a window over images. Padding counts as zeros, as PyTorch has it, or
// with Inside not at all.
type AvgPool2d struct {
	Over   kernels.Window
	Inside bool
}

// Forward gives (n, channels, oh, ow).
func (l AvgPool2d) Forward(x *autodiff.Tensor) *autodiff.Tensor {
	return autodiff.AvgPool2d(x, l.Over, l.Inside)
}

// Params is nothing.
func (l AvgPool2d) Params() []*autodiff.Tensor { return nil }

// Flatten joins all axes but the first: images (n, channels, h, w) become rows (n, channels·h·w).
type Flatten struct{}

// Forward copies nothing.
func (Flatten) Forward(x *autodiff.Tensor) *autodiff.Tensor {
	s := x.Type().Shape
	if x.Err() != nil || len(s) == 0 {
		return autodiff.Reshape(x, -1)
	}
	return autodiff.Reshape(x, s[0], s[1:].Elems())
}

// Params is nothing.
func (Flatten) Params() []*autodiff.Tensor { return nil }
