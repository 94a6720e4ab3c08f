package optim_test

import (
	"fmt"
	"maps"

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
	params := map[string]*autodiff.Tensor{"w": w} // what an optimizer keeps is saved by name
	o, err := optim.NewGroups(optim.Named(optim.AdamW{LR: 0.5}, maps.All(params)))
	if err != nil {
		panic(err)
	}
	o.SetSchedule(schedule)
	train(w, o, 10)
	state, err := o.State()
	if err != nil {
		panic(err)
	}
	fmt.Println(state.Meta.Groups[0].Steps, state.Meta.Advanced, len(state.Tensors))

	again, err := optim.NewGroups(optim.Named(optim.AdamW{LR: 0.5}, maps.All(params)))
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
	// map[w:10] 10 2
	// [-0.33 0.68]
}
