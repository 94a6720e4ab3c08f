// Replicas trains a classifier of handwritten digits on several workers at once, each on rows of
// its own. docs/data-parallel.md tells about it.
//
//	weft run --nproc-per-node 2 bin/replicas
package main

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/examples/internal/table"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel"
)

const (
	steps = 300
	batch = 64 // rows of a step, on all workers together
)

func train(c context.Context, g *collective.Group, data *table.Data) (right float64, err error) {
	model := nn.NewMLP(rand.New(rand.NewPCG(1, uint64(g.Rank()))), autodiff.ReLU, data.Features, 64, data.Classes)
	replicas, err := parallel.Replicate(c, g, model.Params(), parallel.Config{}) // rank 0's values, on all
	if err != nil {
		return 0, err
	}
	opt, err := optim.New(optim.SGD{LR: 0.1, Momentum: 0.9}, model.Params()...)
	if err != nil {
		return 0, err
	}
	rows := parallel.Rows{Seed: 1, N: len(data.Train.Y), Batch: batch}
	for step := range uint64(steps) {
		mine := rows.Of(step, g.Rank(), g.Size())
		x, y := data.Train.Batch(mine)
		loss := autodiff.CrossEntropy(model.Forward(x), y)
		grads, err := replicas.Backward(c, loss, len(mine)) // of the mean over all workers' rows
		if err != nil {
			return 0, err
		}
		if err := opt.Step(grads); err != nil {
			return 0, err
		}
	}
	x, y := data.Test.All()
	return nn.Accuracy(model.Forward(x), y)
}

func run(c context.Context) error {
	g, err := collective.Init(c, collective.Config{}) // joins the job
	if err != nil {
		return err
	}
	data, err := table.Load("", 1)
	if err != nil {
		return err
	}
	right, err := train(c, g, data)
	if err != nil {
		return err
	}
	fmt.Printf("rank %d of %d: %.2f%% of the test digits are right\n", g.Rank(), g.Size(), 100*right)
	return g.Close() // leaves the job
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
