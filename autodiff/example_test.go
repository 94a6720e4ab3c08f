package autodiff_test

import (
	"fmt"

	"github.com/weft-project/weft/autodiff"
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
