package main

import (
	"context"
	"math/rand/v2"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel"
)

// newModel is the network before the first step: features → hidden → hidden/2 → classes. GELU has
// no kinks, so that what little the order of a sum changes stays little, and one can see that
// nothing else has.
func (t *trainer) newModel() nn.Sequential {
	src := rand.New(rand.NewPCG(t.seed, 2))
	return nn.NewMLP(src, autodiff.GELU, t.data.Features, t.hidden, max(t.hidden/2, 1), t.data.Classes)
}

func (t *trainer) rule() optim.Rule { return optim.SGD{LR: t.lr, Momentum: 0.9, WeightDecay: 5e-4} }

// steps go through the training part as often as there are epochs.
func (t *trainer) steps() int { return t.epochs * t.perEpoch() }

func (t *trainer) perEpoch() int { return (len(t.data.Train.Y) + t.batch - 1) / t.batch }

func (t *trainer) rows() parallel.Rows {
	return parallel.Rows{Seed: t.seed, N: len(t.data.Train.Y), Batch: t.batch}
}

// loss is the mean loss over some rows.
func (t *trainer) loss(_ context.Context, rows []int) (*autodiff.Tensor, error) {
	x, y := t.data.Train.Batch(rows)
	if err := autodiff.NewArena("step").Adopt(x); err != nil {
		return nil, err
	}
	return nn.CrossEntropy(t.model.Forward(x), y), nil
}

// accuracy is the share of the test rows that are recognised.
func (t *trainer) accuracy() (float64, error) {
	x, y := t.data.Test.All()
	owner := autodiff.NewArena("test")
	defer owner.Free()
	if err := owner.Adopt(x); err != nil {
		return 0, err
	}
	return nn.Accuracy(t.model.Forward(x), y)
}
