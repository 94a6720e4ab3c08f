package kernels

import (
	"fmt"

	"github.com/weft-project/weft/device"
)

// MaxPool2d is the largest element under the window, or NaN where there is one: (n, c, h, w) → (n,
// c, oh, ow). The padding, on each side at most half of what the kernel reaches over, is −Inf.
type MaxPool2d struct{ Window }

func (i MaxPool2d) String() string { return fmt.Sprintf("MaxPool2d(%v)", i.Window) }

// Infer takes images of floats.
func (i MaxPool2d) Infer(in []Type) ([]Type, error) { return i.pooled(i, in) }

func (i MaxPool2d) flops(in, out []Type) int { return elems(out, 0) * i.Kernel[0] * i.Kernel[1] }

// pooled is the result of a window that goes over each channel of images, the only operand.
func (w Window) pooled(i Instr, in []Type) ([]Type, error) {
	if err := expectFloats(i, in, 1); err != nil {
		return nil, err
	}
	out, err := w.images(i, in)
	if err != nil {
		return nil, err
	}
	x := in[0].Shape
	types, err := result(i, in, in[0].Dtype, device.Shape{x[0], x[1], out[0], out[1]})
	if err != nil {
		return nil, err
	}
	return types, w.halves(i, in)
}

// halves refuses padding under which a kernel without dilation would see nothing else, as PyTorch
// does. The window must have been found to fit.
func (w Window) halves(i Instr, in []Type) error {
	w = w.Whole()
	for a := range 2 {
		reach := (w.Kernel[a]-1)*w.Dilation[a] + 1
		if pad := max(w.Before[a], w.After[a]); pad > reach/2 {
			return refuse(i, in, "padding must be at most half of the kernel: %d where it reaches over %d", pad, reach)
		}
	}
	return nil
}

// MaxPool2dGrad is the gradient of MaxPool2d: (x, gy) → like x. Of equal elements under a window
// the first, row by row, gets its gradient; of several NaN the last; and none where the window sees
// nothing but padding.
type MaxPool2dGrad struct{ Window }

func (i MaxPool2dGrad) String() string { return fmt.Sprintf("MaxPool2dGrad(%v)", i.Window) }

// Infer takes the images and the gradient of the result.
func (i MaxPool2dGrad) Infer(in []Type) ([]Type, error) {
	if err := expectFloats(i, in, 2); err != nil {
		return nil, err
	}
	if _, err := i.images(i, in); err != nil {
		return nil, err
	}
	x := in[0].Shape
	if err := i.gradient(i, in, 1, x, x[1:]); err != nil {
		return nil, err
	}
	return []Type{in[0]}, i.halves(i, in)
}

func (i MaxPool2dGrad) flops(in, out []Type) int { return elems(in, 0) }

// AvgPool2d is the mean of the elements under the window: (n, c, h, w) → (n, c, oh, ow). The
// padding counts as zeros, unless Inside: then the mean is of what lies inside of the image.
type AvgPool2d struct {
	Window
	Inside bool
}

func (i AvgPool2d) String() string {
	return fmt.Sprintf("AvgPool2d(%v, inside=%t)", i.Window, i.Inside)
}

// Infer takes images of floats.
func (i AvgPool2d) Infer(in []Type) ([]Type, error) { return i.pooled(i, in) }

func (i AvgPool2d) flops(in, out []Type) int { return elems(out, 0) * i.Kernel[0] * i.Kernel[1] }

// AvgPool2dGrad is the gradient of AvgPool2d: gy → (n, c, Height, Width).
type AvgPool2dGrad struct {
	AvgPool2d
	Height, Width int // of the images
}

func (i AvgPool2dGrad) String() string {
	return fmt.Sprintf("AvgPool2dGrad(%v, inside=%t, %d×%d)", i.Window, i.Inside, i.Height, i.Width)
}

// Infer takes the gradient of the result.
func (i AvgPool2dGrad) Infer(in []Type) ([]Type, error) {
	if err := expectFloats(i, in, 1); err != nil {
		return nil, err
	}
	gy := in[0].Shape
	if len(gy) != 4 {
		return nil, refuse(i, in, "operand 0 must be images (n, channels, height, width)")
	}
	x, err := result(i, in, in[0].Dtype, device.Shape{gy[0], gy[1], i.Height, i.Width})
	if err != nil {
		return nil, err
	}
	if err := i.gradient(i, in, 0, x[0].Shape, gy[1:]); err != nil {
		return nil, err
	}
	return x, i.halves(i, in)
}

func (i AvgPool2dGrad) flops(in, out []Type) int { return elems(out, 0) }
