// Each is a short program whose workers train apart, by outer.Each: it learns the sums of rows of
// four numbers. docs/internet.md shows it.
//
//	weft run --nproc-per-node 4 --max-restarts 9 bin/each
package main

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel/outer"
)

func main() {
	if err := train(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func train(c context.Context) error {
	m, err := elastic.Join(c) // the job of weft run
	if err != nil {
		return err
	}
	defer m.Close()
	model := nn.NewMLP(rand.New(rand.NewPCG(1, 1)), autodiff.GELU, 4, 16, 1)
	opt, err := optim.New(optim.SGD{LR: 0.02, Momentum: 0.9}, model.Params()...)
	if err != nil {
		return err
	}
	last := 0.0
	err = outer.Each(c, m, model.Params(), outer.Config{Every: 20}, func(c context.Context, _ *elastic.Epoch, loop *outer.Loop) error {
		for loop.Rounds() < 20 { // also where this worker comes later
			loss := lossOf(model, 32) // rows of this worker's own
			grads, err := autodiff.Backward(loss)
			if err == nil {
				err = opt.Step(grads.All())
			}
			if err == nil {
				last, err = loss.Item()
			}
			if err == nil {
				err = loop.Step(c)
			}
			if err != nil {
				return err
			}
		}
		return loop.Finish(c) // the same parameters on all
	})
	fmt.Printf("loss %.4f\n", last)
	return err
}

// lossOf is the loss of some new rows, in which there is their sum to learn.
func lossOf(model nn.Layer, rows int) *autodiff.Tensor {
	x, sums := make([]float32, 4*rows), make([]float32, rows)
	for i := range x {
		x[i] = float32(rand.NormFloat64())
		sums[i/4] += x[i]
	}
	return nn.MSE(model.Forward(autodiff.New(x, rows, 4)), autodiff.New(sums, rows, 1))
}
