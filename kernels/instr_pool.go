package kernels

import (
	"fmt"

	"github.com/weft-project/weft/device"
)

// MaxPool2d is the largest element under the window, or NaN where there is one: (n, c, h, w) → (n, c, oh, ow). The padding is −Inf.
type MaxPool2d struct{ Window }

func (i MaxPool2d) String() string { return fmt.Sprintf("MaxPool2d(%v)", i.Window) }

// Infer takes images of floats.
func (i MaxPool2d) Infer(in []Type) ([]Type, error) { return i.pooled(i, in) }

// pooled is the result of a window that goes over each channel of images, the only operand.
func (w Window) pooled(i Instr, in []Type) ([]Type, error) {
	if err := expectFloats(i, in, 1); err != nil {
		return nil, err
	}
	out, err := w.images(i, in, 0)
	if err != nil {
		return nil, err
	}
	x := in[0].Shape
	return result(i, in, in[0].Dtype, device.Shape{x[0], x[1], out[0], out[1]})
}

// MaxPool2dGrad is the gradient of MaxPool2d: (x, gy) → like x. Of equal elements under a window the first, row by row, gets its gradient;
// of several NaN the last; and none where the window sees nothing but padding.
type MaxPool2dGrad struct{ Window }

func (i MaxPool2dGrad) String() string { return fmt.Sprintf("MaxPool2dGrad(%v)", i.Window) }

// Infer takes the images and the gradient of the result.
func (i MaxPool2dGrad) Infer(in []Type) ([]Type, error) {
	if err := expectFloats(i, in, 2); err != nil {
		return nil, err
	}
	if _, err := i.images(i, in, 0); err != nil {
		return nil, err
	}
	x := in[0].Shape
	return []Type{in[0]}, i.gradient(i, in, 1, x, x[1:])
}

// AvgPool2d is the mean of the elements under the window: (n, c, h, w) → (n, c, oh, ow). The padding counts as zeros, unless Inside: then
// the mean is of what lies inside of the image.
type AvgPool2d struct {
	Window
	Inside bool
}

func (i AvgPool2d) String() string {
	return fmt.Sprintf("AvgPool2d(%v, inside=%t)", i.Window, i.Inside)
}

// Infer takes images of floats.
func (i AvgPool2d) Infer(in []Type) ([]Type, error) { return i.pooled(i, in) }

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
	return x, i.gradient(i, in, 0, x[0].Shape, gy[1:])
}
