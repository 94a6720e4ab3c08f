// One fits a sine in one process. docs/start.md tells about it, and examples/start/two splits it
// over two workers.
package main

import (
	"fmt"
	"log"
	"math"
	"math/rand/v2"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/optim"
)

// batch draws points of a sine.
func batch(src *rand.Rand) (x, y *autodiff.Tensor) {
	const rows = 64
	xs, ys := make([]float32, rows), make([]float32, rows)
	for i := range xs {
		xs[i] = float32(src.Float64()*6 - 3)
		ys[i] = float32(math.Sin(float64(xs[i])))
	}
	return autodiff.New(xs, rows, 1), autodiff.New(ys, rows, 1)
}

func main() {
	src := rand.New(rand.NewPCG(1, 2))
	net := nn.NewMLP(src, autodiff.Tanh, 1, 32, 32, 1)
	opt, err := optim.New(optim.Adam{LR: 0.01}, net.Params()...)
	if err != nil {
		log.Fatal(err)
	}
	for step := range 500 {
		x, y := batch(src)
		loss := nn.MSE(net.Forward(x), y)
		grads, err := autodiff.Backward(loss)
		if err != nil {
			log.Fatal(err)
		}
		if err := opt.Step(grads.All()); err != nil {
			log.Fatal(err)
		}
		if step%100 == 99 {
			value, err := loss.Item()
			if err != nil {
				log.Fatal(err)
			}
			fmt.Printf("step %d  loss %.5f\n", step+1, value)
		}
	}
}
