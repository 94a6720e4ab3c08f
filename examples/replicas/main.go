// Replicas trains a classifier of handwritten digits on several workers at once, each on rows of
// its own. docs/data-parallel.md tells about it, and how it differs from a program for one worker.
//
//	weft run --nproc-per-node 2 bin/replicas
package main

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/examples/internal/program"
	"github.com/weft-project/weft/examples/internal/table"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/parallel/loader"
)

const (
	steps = 300
	batch = 64 // rows of a step
)

type digits struct{ X, Y *autodiff.Tensor }

func run(c context.Context) error {
	g, err := collective.Init(c, collective.Config{}) // joins the job
	if err != nil {
		return err
	}
	defer g.Close() // leaves the job: the others hear of it at once
	data, err := table.Load("", 1)
	if err != nil {
		return err
	}
	model := nn.NewMLP(rand.New(rand.NewPCG(1, 1)), autodiff.ReLU, data.Features, 64, data.Classes)
	opt, err := optim.New(optim.SGD{LR: 0.1, Momentum: 0.9}, model.Params()...)
	if err != nil {
		return err
	}
	replicas, err := parallel.Replicate(c, g, model.Params(), parallel.Config{}) // rank 0's values, on all
	if err != nil {
		return err
	}
	batches, err := loader.New(loader.Numbers(len(data.Train.Y)), func(rows []int) (d digits, err error) {
		d.X, d.Y = data.Train.Batch(rows)
		return d, nil
	}, loader.Config{Seed: 1, Batch: batch, Rank: g.Rank(), Size: g.Size()})
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
		grads, err := replicas.Backward(c, loss, len(b.Rows)) // of the mean over all workers' rows
		if err != nil {
			return err
		}
		if err := opt.Step(grads); err != nil {
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
