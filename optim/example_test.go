package optim_test

import (
	"fmt"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/optim"
)

// A training loop with a schedule and clipped gradients, which is interrupted and goes on.
func Example() {
	loss := func(w *autodiff.Tensor) *autodiff.Tensor {
		return autodiff.Sum(autodiff.Mul(w, w))
	}
	train := func(w *autodiff.Tensor, o *optim.Local, steps int) {
		for range steps {
			grads, err := autodiff.Backward(loss(w))
			if err != nil {
				panic(err)
			}
			if _, err := o.StepClipped(grads.All(), 1); err != nil {
				panic(err)
			}
			o.Advance()
		}
	}
	schedule := optim.LinearWarmup(0.1, 5).Then(5, optim.Cosine(15, 0))
	w := autodiff.New([]float64{3, -4}).RequireGrad()
	o, err := optim.New(optim.AdamW{LR: 0.5}, w)
	if err != nil {
		panic(err)
	}
	o.SetSchedule(schedule)
	train(w, o, 10)
	state, err := o.State()
	if err != nil {
		panic(err)
	}
	fmt.Println(state.Meta.Steps, state.Meta.Advanced, len(state.Tensors))

	again, err := optim.New(optim.AdamW{LR: 0.5}, w)
	if err != nil {
		panic(err)
	}
	again.SetSchedule(schedule)
	if err := again.Load(state); err != nil {
		panic(err)
	}
	train(w, again, 10)
	v, _ := autodiff.Values[float64](w)
	fmt.Printf("%.2f\n", v)
	// Output:
	// [10] 10 2
	// [-0.33 0.68]
}
