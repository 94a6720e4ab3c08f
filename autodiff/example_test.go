package autodiff_test

import (
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda/interpreter"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/gpu"
)

// A model that was written with Gorgonia's own functions trains here, and its parameters go back to
// where they came from.
func ExampleFromGorgonia() {
	g := gorgonia.NewGraph()
	x := gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithShape(3, 2), gorgonia.WithName("x"))
	y := gorgonia.NewVector(g, tensor.Float64, gorgonia.WithShape(3), gorgonia.WithName("y"))
	w := gorgonia.NewVector(g, tensor.Float64, gorgonia.WithShape(2), gorgonia.WithName("w"), gorgonia.WithInit(gorgonia.Zeroes()))
	miss := gorgonia.Must(gorgonia.Sub(gorgonia.Must(gorgonia.Mul(x, w)), y))
	loss := gorgonia.Must(gorgonia.Mean(gorgonia.Must(gorgonia.Square(miss))))

	model, err := autodiff.FromGorgonia([]*gorgonia.Node{x, y, w}, []*gorgonia.Node{loss})
	if err != nil {
		fmt.Println(err)
		return
	}
	params, err := autodiff.FromGorgoniaParams(w)
	if err != nil {
		fmt.Println(err)
		return
	}
	xs, ys := autodiff.New([]float64{1, 0, 0, 1, 1, 1}, 3, 2), autodiff.New([]float64{2, -3, -1})
	for step := range 200 {
		grads, err := autodiff.Backward(model.Call(xs, ys, params[0]))
		if err != nil {
			fmt.Println(err)
			return
		}
		sgd := kernels.Update{Rule: kernels.SGD, LR: 0.5, Scale: 1, Step: step + 1} // package optim has optimizers
		if err := autodiff.Apply(sgd, []*autodiff.Tensor{params[0], grads.Of(params[0])}, 0); err != nil {
			fmt.Println(err)
			return
		}
	}
	if err := autodiff.ToGorgoniaParams([]*gorgonia.Node{w}, params); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%.4f\n", w.Value().Data())
	// Output: [2.0000 -3.0000]
}

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
