package main

import (
	"math/rand/v2"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/optim"
)

// firstParams are the parameters before the first step: features → hidden → hidden/2 → classes,
// weights and biases in turn.
func (t *trainer) firstParams() []*autodiff.Tensor {
	src := rand.New(rand.NewPCG(t.seed, 2))
	return nn.NewMLP(src, autodiff.GELU, t.data.Features, t.hidden, max(t.hidden/2, 1), t.data.Classes).Params()
}

// logits is the network's output for some rows, with parameters from wherever they are. GELU has no
// kinks, so that what little the order of a sum changes stays little, and one can see that nothing
// else has.
func logits(params []*autodiff.Tensor, x *autodiff.Tensor) *autodiff.Tensor {
	for i := 0; i < len(params); i += 2 {
		if i > 0 {
			x = autodiff.GELU(x)
		}
		x = autodiff.Linear(x, params[i], params[i+1])
	}
	return x
}

func (t *trainer) rule() optim.Rule { return optim.SGD{LR: t.lr, Momentum: 0.9, WeightDecay: 5e-4} }

// perEpoch is how many steps go once through the training part.
func (t *trainer) perEpoch() int { return (len(t.data.Train.Y) + t.batch - 1) / t.batch }

func (t *trainer) steps() int { return t.epochs * t.perEpoch() }

// rows are the examples of a step: the seed and the step say which, and nothing else does.
func (t *trainer) rows(step int) []int {
	epoch, at := step/t.perEpoch(), step%t.perEpoch()*t.batch
	order := rand.New(rand.NewPCG(t.seed, uint64(4+epoch))).Perm(len(t.data.Train.Y))
	return order[at:min(at+t.batch, len(order))]
}

// share is what a worker has of n things.
func share(n, rank, world int) (from, to int) { return rank * n / world, (rank + 1) * n / world }
