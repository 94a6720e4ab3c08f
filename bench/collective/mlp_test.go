package collective

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel"
)

// gradients are what a backward gives.
type gradients = map[*autodiff.Tensor]*autodiff.Tensor

// backward gives the gradients of a loss.
type backward func(c context.Context, loss *autodiff.Tensor) (gradients, error)

// mlp makes training steps of a network of 784, 1024, 1024 and 10, with 64 rows on each rank.
func mlp(prepare func(g *collective.Group, params []*autodiff.Tensor, bucket int) (backward, error)) func(g *collective.Group, bytes int) operation {
	return func(g *collective.Group, bucket int) operation {
		src := rand.New(rand.NewPCG(1, uint64(g.Rank())))
		model := nn.NewMLP(src, autodiff.ReLU, 784, 1024, 1024, 10)
		x, labels := make([]float32, 64*784), make([]int64, 64)
		for i := range x {
			x[i] = src.Float32()
		}
		for i := range labels {
			labels[i] = int64(src.IntN(10))
		}
		y := autodiff.New(labels)
		opt, err := optim.New(optim.SGD{LR: 0.01}, model.Params()...)
		if err != nil {
			return func(context.Context) error { return err }
		}
		do, err := prepare(g, model.Params(), bucket)
		return func(c context.Context) error {
			if err != nil {
				return err
			}
			arena := autodiff.NewArena("step")
			defer arena.Free()
			in := autodiff.New(x, 64, 784)
			if err := arena.Adopt(in); err != nil {
				return err
			}
			grads, err := do(c, autodiff.CrossEntropy(model.Forward(in), y))
			if err != nil {
				return err
			}
			return opt.Step(grads)
		}
	}
}

// plainMLP is what the work alone takes, on all ranks at once.
var plainMLP = mlp(func(*collective.Group, []*autodiff.Tensor, int) (backward, error) {
	return func(_ context.Context, loss *autodiff.Tensor) (gradients, error) {
		grads, err := autodiff.Backward(loss)
		if err != nil {
			return nil, err
		}
		return grads.All(), nil
	}, nil
})

// replicateMLP has gradients of so many bytes travel alone, and smaller ones together.
var replicateMLP = mlp(func(g *collective.Group, params []*autodiff.Tensor, bucket int) (backward, error) {
	r, err := parallel.Replicate(context.Background(), g, params, parallel.Config{Bucket: bucket})
	return func(c context.Context, loss *autodiff.Tensor) (gradients, error) { return r.Backward(c, loss, 64) }, err
})

// What is above the plain step compares with PyTorch's DistributedDataParallel. Bytes are those of
// Config.Bucket; 0 is its default, and with 64 MiB everything leaves at the end.
func BenchmarkPlainMLP(b *testing.B)     { measure(b, "PlainMLP", 0) }
func BenchmarkReplicateMLP(b *testing.B) { measure(b, "ReplicateMLP", 0, 64<<10, 64<<20) }
