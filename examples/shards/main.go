// Shards trains a classifier of handwritten digits on several workers, each of which takes rows of
// its own and keeps a part of the model. docs/sharding.md tells about it.
//
//	weft run --nproc-per-node 2 bin/shards
package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/examples/internal/program"
	"github.com/weft-project/weft/examples/internal/table"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/parallel/shard"
)

const (
	steps = 300
	batch = 64 // rows of a step, on all workers together
)

// layersOf are the parameters of each layer that has any.
func layersOf(model nn.Sequential) (layers [][]*autodiff.Tensor) {
	for _, l := range model {
		if params := l.Params(); len(params) > 0 {
			layers = append(layers, params)
		}
	}
	return layers
}

// forward runs the model. A layer is whole while it runs.
func forward(c context.Context, shards *shard.Shards, model nn.Sequential, x *autodiff.Tensor) *autodiff.Tensor {
	k := 0
	for _, l := range model {
		if len(l.Params()) == 0 {
			x = l.Forward(x)
			continue
		}
		x = shards.Layer(c, k, func() *autodiff.Tensor { return l.Forward(x) })
		k++
	}
	return x
}

func train(c context.Context, g *collective.Group, data *table.Data) (right float64, err error) {
	model := nn.NewMLP(rand.New(rand.NewPCG(1, uint64(g.Rank()))), autodiff.ReLU, data.Features, 64, 32, data.Classes)
	shards, err := shard.New(c, g, layersOf(model), shard.Config{Names: maps.Collect(nn.Parameters(model))}) // rank 0's values
	if err != nil {
		return 0, err
	}
	opt, err := optim.NewGroups(shards.Named(optim.Adam{LR: 0.003})) // of this rank's shards
	if err != nil {
		return 0, err
	}
	rows := parallel.Rows{Seed: 1, N: len(data.Train.Y), Batch: batch}
	for step := range uint64(steps) {
		mine := rows.Of(step, g.Rank(), g.Size())
		x, y := data.Train.Batch(mine)
		loss := autodiff.CrossEntropy(forward(c, shards, model, x), y)
		grads, err := shards.Backward(c, loss, len(mine)) // of the mean over all workers' rows
		if err != nil {
			return 0, err
		}
		if err := opt.Step(grads); err != nil {
			return 0, err
		}
	}
	x, y := data.Test.All()
	right, err = nn.Accuracy(forward(c, shards, model, x), y) // which all workers do
	if err != nil {
		return 0, err
	}
	return right, shards.Finish(c)
}

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
	right, err := train(c, g, data)
	if err != nil {
		return err
	}
	fmt.Printf("%.2f%% of the test digits are right\n", 100*right)
	return nil
}

func main() { program.Run(run) }
