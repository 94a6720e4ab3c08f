package gorgonia_test

import (
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/weft-project/weft/autodiff"
	weftgorgonia "github.com/weft-project/weft/autodiff/gorgonia"
	"github.com/weft-project/weft/kernels"
)

// A model that was written with Gorgonia's own functions trains here, and its parameters go back to
// where they came from.
func ExampleFrom() {
	g := gorgonia.NewGraph()
	x := gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithShape(3, 2), gorgonia.WithName("x"))
	y := gorgonia.NewVector(g, tensor.Float64, gorgonia.WithShape(3), gorgonia.WithName("y"))
	w := gorgonia.NewVector(g, tensor.Float64, gorgonia.WithShape(2), gorgonia.WithName("w"), gorgonia.WithInit(gorgonia.Zeroes()))
	miss := gorgonia.Must(gorgonia.Sub(gorgonia.Must(gorgonia.Mul(x, w)), y))
	loss := gorgonia.Must(gorgonia.Mean(gorgonia.Must(gorgonia.Square(miss))))

	model, err := weftgorgonia.From([]*gorgonia.Node{x, y, w}, []*gorgonia.Node{loss})
	if err != nil {
		fmt.Println(err)
		return
	}
	params, err := weftgorgonia.FromParams(w)
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
	if err := weftgorgonia.ToParams([]*gorgonia.Node{w}, params); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%.4f\n", w.Value().Data())
	// Output: [2.0000 -3.0000]
}
