package kernels

import (
	"fmt"

	"github.com/weft-project/weft/device"
)

// Window is how a kernel slides over the last two axes of images (n, channels, height, width).
type Window struct {
	Kernel        [2]int // height and width
	Stride        [2]int // 0 means 1
	Before, After [2]int // padding: rows above and below, columns left and right
	Dilation      [2]int // distance between the kernel's elements; 0 means 1
}

// Square is the window of a k×k kernel with one stride and one padding for all sides.
func Square(k, stride, pad int) Window {
	return Window{Kernel: [2]int{k, k}, Stride: [2]int{stride, stride}, Before: [2]int{pad, pad}, After: [2]int{pad, pad}}
}

// String prints the kernel, and what differs from a stride and dilation of 1 and no padding.
func (w Window) String() string {
	s := fmt.Sprintf("%d×%d", w.Kernel[0], w.Kernel[1])
	w = w.Whole()
	if w.Stride != [2]int{1, 1} {
		s += fmt.Sprintf(" stride=%v", w.Stride)
	}
	if w.Before != w.After {
		s += fmt.Sprintf(" pad=%v..%v", w.Before, w.After)
	} else if w.Before != [2]int{} {
		s += fmt.Sprintf(" pad=%v", w.Before)
	}
	if w.Dilation != [2]int{1, 1} {
		s += fmt.Sprintf(" dilation=%v", w.Dilation)
	}
	return s
}

// Whole has the defaults filled in.
func (w Window) Whole() Window {
	for a := range 2 {
		if w.Stride[a] == 0 {
			w.Stride[a] = 1
		}
		if w.Dilation[a] == 0 {
			w.Dilation[a] = 1
		}
	}
	return w
}

// maxWindow bounds what a window says, and the images that it slides over, so that positions do not
// overflow.
const maxWindow = 1 << 30

// Over gives the extents of the result of sliding over h×w. The window must be whole.
func (w Window) Over(height, width int) (out [2]int, err error) {
	for a, n := range [2]int{height, width} {
		k, s, d := w.Kernel[a], w.Stride[a], w.Dilation[a]
		for _, v := range []int{k, s, d} {
			if v < 1 || v > maxWindow {
				return out, fmt.Errorf("kernel, stride and dilation must be at least 1 and at most %d", maxWindow)
			}
		}
		if min(w.Before[a], w.After[a]) < 0 || max(n, w.Before[a], w.After[a]) > maxWindow {
			return out, fmt.Errorf("padding must be at least 0, and it and images at most %d", maxWindow)
		}
		reach := (k-1)*d + 1
		padded := n + w.Before[a] + w.After[a]
		if reach > padded {
			return out, fmt.Errorf("a kernel that reaches over %d does not fit into %d with padding", reach, padded)
		}
		out[a] = (padded-reach)/s + 1
	}
	return out, nil
}

// images checks that the first operand is images, and gives the extents of the window's result over
// them.
func (w Window) images(i Instr, in []Type) ([2]int, error) {
	if len(in[0].Shape) != 4 {
		return [2]int{}, refuse(i, in, "operand 0 must be images (n, channels, height, width)")
	}
	out, err := w.Whole().Over(in[0].Shape[2], in[0].Shape[3])
	if err != nil {
		return out, refuse(i, in, "%v", err)
	}
	return out, nil
}

// Im2col lays out what the kernel sees at each of its positions, zeros in the padding: images (n,
// c, h, w) → (n, c·kh·kw, oh·ow), or with Rows (n, oh, ow, c·kh·kw).
type Im2col struct {
	Window
	Rows bool
}

func (i Im2col) String() string { return fmt.Sprintf("Im2col(%v, rows=%t)", i.Window, i.Rows) }

// Infer takes images of floats.
func (i Im2col) Infer(in []Type) ([]Type, error) {
	if err := expectFloats(i, in, 1); err != nil {
		return nil, err
	}
	return i.columns(i, in, in[0])
}

// columns is the type of the columns of images x.
func (i Im2col) columns(self Instr, in []Type, x Type) ([]Type, error) {
	if len(x.Shape) != 4 {
		return nil, refuse(self, in, "expected images (n, channels, height, width)")
	}
	out, err := i.Whole().Over(x.Shape[2], x.Shape[3])
	if err != nil {
		return nil, refuse(self, in, "%v", err)
	}
	taps, err := i.taps(self, in, x.Shape[1])
	if err != nil {
		return nil, err
	}
	if i.Rows {
		return result(self, in, x.Dtype, device.Shape{x.Shape[0], out[0], out[1], taps})
	}
	if (device.Shape{out[0], out[1]}).Check() != nil {
		return nil, refuse(self, in, "too many elements")
	}
	return result(self, in, x.Dtype, device.Shape{x.Shape[0], taps, out[0] * out[1]})
}

// taps is how many elements of an image with c channels the kernel sees at once.
func (w Window) taps(i Instr, in []Type, c int) (int, error) {
	s := device.Shape{c, w.Kernel[0], w.Kernel[1]}
	if err := s.Check(); err != nil {
		return 0, refuse(i, in, "%v", err)
	}
	return s.Elems(), nil
}

// Col2im is the gradient of Im2col: columns → images (n, c, H, W), each element the sum of all that
// were taken from it.
type Col2im struct {
	Im2col
	Channels, Height, Width int // of the images
}

func (i Col2im) String() string {
	return fmt.Sprintf("Col2im(%v, rows=%t, %d×%d×%d)", i.Window, i.Rows, i.Channels, i.Height, i.Width)
}

// Infer takes columns as Im2col gives them.
func (i Col2im) Infer(in []Type) ([]Type, error) {
	if err := expectFloats(i, in, 1); err != nil {
		return nil, err
	}
	if len(in[0].Shape) == 0 {
		return nil, refuse(i, in, "expected columns")
	}
	x, err := result(i, in, in[0].Dtype, device.Shape{in[0].Shape[0], i.Channels, i.Height, i.Width})
	if err != nil {
		return nil, err
	}
	cols, err := i.columns(i, in, x[0])
	if err != nil {
		return nil, err
	}
	if !cols[0].Equal(in[0]) {
		return nil, refuse(i, in, "such images have columns %v", cols[0])
	}
	return x, nil
}

func (i Col2im) flops(in, out []Type) int { return elems(in, 0) }

// Conv2d correlates images with kernels: (x (n, c, h, w), w (o, c, kh, kw)) → (n, o, oh, ow).
// Padding adds nothing.
type Conv2d struct{ Window }

func (i Conv2d) String() string { return fmt.Sprintf("Conv2d(%v)", i.Window) }

// Infer takes images and kernels of one floating-point dtype.
func (i Conv2d) Infer(in []Type) ([]Type, error) {
	if err := expectFloats(i, in, 2); err != nil {
		return nil, err
	}
	out, err := i.images(i, in)
	if err != nil {
		return nil, err
	}
	x, w := in[0].Shape, in[1].Shape
	if err := i.weights(i, in, 1); err != nil {
		return nil, err
	}
	if w[1] != x[1] {
		return nil, refuse(i, in, "images of %d channels, kernels of %d", x[1], w[1])
	}
	return result(i, in, in[0].Dtype, device.Shape{x[0], w[0], out[0], out[1]})
}

func (i Conv2d) flops(in, out []Type) int { return 2 * elems(out, 0) * in[1].Shape[1:].Elems() }

// weights checks that operand k is kernels of the window's extents.
func (w Window) weights(i Instr, in []Type, k int) error {
	s := in[k].Shape
	if len(s) != 4 || s[2] != w.Kernel[0] || s[3] != w.Kernel[1] {
		return refuse(i, in, "operand %d must be kernels (out channels, channels, %d, %d)", k, w.Kernel[0], w.Kernel[1])
	}
	return nil
}

// Conv2dGradX is the gradient of Conv2d's images: (w, gy) → x (n, c, Height, Width). On its own it
// is the transposed convolution.
type Conv2dGradX struct {
	Window
	Height, Width int
}

func (i Conv2dGradX) String() string {
	return fmt.Sprintf("Conv2dGradX(%v, %d×%d)", i.Window, i.Height, i.Width)
}

// Infer takes the kernels and the gradient of the result.
func (i Conv2dGradX) Infer(in []Type) ([]Type, error) {
	if err := expectFloats(i, in, 2); err != nil {
		return nil, err
	}
	if err := i.weights(i, in, 0); err != nil {
		return nil, err
	}
	w, gy := in[0].Shape, in[1].Shape
	if len(gy) != 4 {
		return nil, refuse(i, in, "operand 1 must be images (n, channels, height, width)")
	}
	x, err := result(i, in, in[0].Dtype, device.Shape{gy[0], w[1], i.Height, i.Width})
	if err != nil {
		return nil, err
	}
	return x, i.gradient(i, in, 1, x[0].Shape, w)
}

func (i Conv2dGradX) flops(in, out []Type) int { return 2 * elems(in, 1) * in[0].Shape[1:].Elems() }

// gradient checks that operand k has the shape of the result of images x and kernels w.
func (w Window) gradient(i Instr, in []Type, k int, x, kernels device.Shape) error {
	out, err := w.Whole().Over(x[2], x[3])
	if err != nil {
		return refuse(i, in, "%v", err)
	}
	if want := (device.Shape{x[0], kernels[0], out[0], out[1]}); !in[k].Shape.Equal(want) {
		return refuse(i, in, "operand %d must have the result's shape %v", k, want)
	}
	return nil
}

// Conv2dGradW is the gradient of Conv2d's kernels: (x, gy) → w (o, c, kh, kw).
type Conv2dGradW struct{ Window }

func (i Conv2dGradW) String() string { return fmt.Sprintf("Conv2dGradW(%v)", i.Window) }

// Infer takes the images and the gradient of the result.
func (i Conv2dGradW) Infer(in []Type) ([]Type, error) {
	if err := expectFloats(i, in, 2); err != nil {
		return nil, err
	}
	if _, err := i.images(i, in); err != nil {
		return nil, err
	}
	x, gy := in[0].Shape, in[1].Shape
	if len(gy) != 4 {
		return nil, refuse(i, in, "operand 1 must be images (n, channels, height, width)")
	}
	w, err := result(i, in, in[0].Dtype, device.Shape{gy[1], x[1], i.Kernel[0], i.Kernel[1]})
	if err != nil {
		return nil, err
	}
	return w, i.gradient(i, in, 1, x, w[0].Shape)
}

func (i Conv2dGradW) flops(in, out []Type) int { return 2 * elems(in, 1) * out[0].Shape[1:].Elems() }
