// Alone trains a classifier of handwritten digits in one process. docs/data-parallel.md shows what
// makes it a program for several workers.
//
//	go run ./examples/replicas/alone
package main

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/examples/internal/program"
	"github.com/weft-project/weft/examples/internal/table"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel/loader"
)

const (
	steps = 300
	batch = 64 // rows of a step
)

type digits struct{ X, Y *autodiff.Tensor }

func run(c context.Context) error {
	data, err := table.Load("", 1)
	if err != nil {
		return err
	}
	model := nn.NewMLP(rand.New(rand.NewPCG(1, 1)), autodiff.ReLU, data.Features, 64, data.Classes)
	opt, err := optim.New(optim.SGD{LR: 0.1, Momentum: 0.9}, model.Params()...)
	if err != nil {
		return err
	}
	batches, err := loader.New(loader.Numbers(len(data.Train.Y)), func(rows []int) (d digits, err error) {
		d.X, d.Y = data.Train.Batch(rows)
		return d, nil
	}, loader.Config{Seed: 1, Batch: batch})
	if err != nil {
		return err
	}
	defer batches.Close()
	for range steps {
		b, err := batches.Next(c)
		if err != nil {
			return err
		}
		loss := autodiff.CrossEntropy(model.Forward(b.Of.X), b.Of.Y)
		grads, err := autodiff.Backward(loss)
		if err != nil {
			return err
		}
		if err := opt.Step(grads.All()); err != nil {
			return err
		}
	}
	x, y := data.Test.All()
	right, err := nn.Accuracy(model.Forward(x), y)
	if err != nil {
		return err
	}
	fmt.Printf("%.2f%% of the test digits are right\n", 100*right)
	return nil
}

func main() { program.Run(run) }
