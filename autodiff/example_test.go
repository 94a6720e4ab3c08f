package autodiff_test

import (
	"fmt"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda/interpreter"
	"github.com/weft-project/weft/kernels/gpu"
)

// The layers between x and y are computed again when the gradient arrives, instead of being kept.
func ExampleCheckpoint() {
	x, w := autodiff.New([]float64{1, 2}), autodiff.New([]float64{0.5, 2}).RequireGrad()
	y := autodiff.Checkpoint(func(in ...*autodiff.Tensor) []*autodiff.Tensor {
		h := in[0]
		for range 3 {
			h = autodiff.Mul(h, w)
		}
		return []*autodiff.Tensor{h}
	}, x)[0]
	grads, err := autodiff.Backward(autodiff.Sum(y))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(autodiff.Values[float64](grads.Of(w)))
	// Output: [0.75 24] <nil>
}

// A hook may look at a gradient, or replace it.
func ExampleTensor_OnGrad() {
	x := autodiff.Scalar(3.0).RequireGrad()
	y := autodiff.Mul(x, x)
	remove, err := y.OnGrad(func(g *autodiff.Tensor) *autodiff.Tensor { return autodiff.Scale(g, 0.5) })
	if err != nil {
		fmt.Println(err)
		return
	}
	defer remove()
	grads, err := autodiff.Backward(y)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(grads.Of(x).Item())
	// Output: 3 <nil>
}

// A program on a GPU: the interpreter's here, which runs the same kernels. On a real one the driver
// is native.Open's.
func ExampleTo() {
	dev, err := gpu.On(interpreter.Open(), device.CUDA(0))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer dev.Close()
	w := autodiff.To(autodiff.New([]float32{1, 2, 3, 4}, 2, 2), dev).RequireGrad()
	loss := autodiff.Sum(autodiff.MatMul(w, w))
	grads, err := autodiff.Backward(loss)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(loss.Item())
	fmt.Println(grads.Of(w).Device())
	fmt.Println(autodiff.Values[float32](grads.Of(w)))
	// Output:
	// 54 <nil>
	// cuda:0
	// [7 11 9 13] <nil>
}
