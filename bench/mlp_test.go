package bench

import (
	"context"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/kernels/cpu"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport"
)

// The model: 784-1024 here, 1024-10 on the other worker (or here too), cross-entropy here, SGD on
// both.
var (
	firstLayer  = linearSize{Seed: 10, In: 784, Out: 1024}
	secondLayer = linearSize{Seed: 20, In: 1024, Out: 10}
	rule        = optim.SGD{LR: 0.05}
)

// batch is 64 rows of what MNIST looks like to a layer: numbers.
type batch struct {
	x      []float32
	labels *autodiff.Tensor
}

func newBatch() batch {
	labels := make([]int64, 64)
	for i := range labels {
		labels[i] = int64(i * 7 % 10)
	}
	return batch{hashed(30, 1.7, 64*784), autodiff.New(labels)}
}

// input is the batch as a tensor, made anew for every step as a program that reads its data does.
func (d batch) input() *autodiff.Tensor { return autodiff.New(d.x, 64, 784) }

// stepper trains for one step and gives the loss where want says so.
type stepper func(c context.Context, want bool) (float64, error)

func lossOf(t *autodiff.Tensor, want bool) (float64, error) {
	if !want {
		return 0, t.Err()
	}
	return t.Item()
}

// pipeline makes the model on two workers.
func pipeline(t testing.TB, w *rpc.Worker, mode ctx.Mode) stepper {
	t.Helper()
	c := w.Context(t.Context())
	first, data := firstLayer.layer(), newBatch()
	second := newLinear.Remote(c, peer, secondLayer)
	t.Cleanup(second.Release)
	ps, err := refs(c, first)
	require.NoError(t, err)
	there, err := params.Call(c, peer, second)
	require.NoError(t, err)
	opt, err := optim.NewDistributed(c, rule, append(ps, there...)...)
	require.NoError(t, err)
	t.Cleanup(opt.Release)
	return func(c context.Context, want bool) (loss float64, err error) {
		err = w.Pass(c, func(c context.Context) error {
			h := autodiff.ReLU(first.Forward(ctx.Own(c, data.input())))
			logits, err := forward.Call(c, peer, forwarding{second, h})
			if err != nil {
				return err
			}
			l := autodiff.CrossEntropy(logits, data.labels)
			if err := ctx.BackwardWith(c, ctx.Options{Mode: mode}, l); err != nil {
				return err
			}
			if loss, err = lossOf(l, want); err != nil {
				return err
			}
			return opt.Step(c)
		})
		return loss, err
	}
}

// oneProcess makes the same model in this process alone.
func oneProcess(t testing.TB) stepper {
	t.Helper()
	model, data := nn.Sequential{firstLayer.layer(), nn.Activation(autodiff.ReLU), secondLayer.layer()}, newBatch()
	opt, err := optim.New(rule, model.Params()...)
	require.NoError(t, err)
	return func(_ context.Context, want bool) (float64, error) {
		owner := autodiff.NewArena("step")
		defer owner.Free()
		x := data.input()
		if err := owner.Adopt(x); err != nil {
			return 0, err
		}
		l := autodiff.CrossEntropy(model.Forward(x), data.labels)
		grads, err := autodiff.Backward(l)
		if err != nil {
			return 0, err
		}
		if err := opt.Step(grads.All()); err != nil {
			return 0, err
		}
		return lossOf(l, want)
	}
}

// BenchmarkPipelineMLP is a training step of the model on two workers: forward, backward and the
// distributed optimizer.
func BenchmarkPipelineMLP(b *testing.B) {
	overLanes(b, func(b *testing.B, w *rpc.Worker) {
		benchmarkSteps(b, pipeline(b, w, ctx.Smart), w.Settle)
	})
}

// BenchmarkFastPipelineMLP is BenchmarkPipelineMLP in FAST mode, for what SMART costs.
func BenchmarkFastPipelineMLP(b *testing.B) {
	overLanes(b, func(b *testing.B, w *rpc.Worker) {
		benchmarkSteps(b, pipeline(b, w, ctx.Fast), w.Settle)
	})
}

// BenchmarkOneProcessMLP is the same step in one process, for the ratio.
func BenchmarkOneProcessMLP(b *testing.B) {
	benchmarkSteps(b, oneProcess(b), func(context.Context) error { return nil })
}

func benchmarkSteps(b *testing.B, step stepper, settle func(context.Context) error) {
	c := b.Context()
	for range 5 {
		_, err := step(c, false)
		require.NoError(b, err)
	}
	require.NoError(b, settle(c))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := step(c, false); err != nil {
			b.Fatal(err)
		}
	}
	b.StartTimer()
	err := settle(c)
	b.StopTimer()
	require.NoError(b, err)
	perSecond(b, 1, "steps")
}

func TestThePipelinesLossesAreThoseOfOneProcessAndFall(t *testing.T) {
	overLanes(t, func(t *testing.T, w *rpc.Worker) {
		split, whole := pipeline(t, w, ctx.Smart), oneProcess(t)
		var losses []float64
		for range 8 {
			got, err := split(t.Context(), true)
			require.NoError(t, err)
			want, err := whole(t.Context(), true)
			require.NoError(t, err)
			require.Equal(t, want, got)
			losses = append(losses, got)
		}
		require.Less(t, losses[7], 0.75*losses[0])
		require.NoError(t, w.Settle(t.Context()))
		require.Empty(t, w.Passes())
	})
}

// testdata/mlp_losses.json is what torch/dist_autograd.py writes.
func TestTheSplitModelLosesAsTorchsDoes(t *testing.T) {
	raw, err := os.ReadFile("testdata/mlp_losses.json")
	require.NoError(t, err)
	var want []float64
	require.NoError(t, json.Unmarshal(raw, &want))
	require.Len(t, want, 100)
	w := startLane(t, transport.LaneQUIC).worker
	step := pipeline(t, w, ctx.Smart)
	for i := range want {
		got, err := step(t.Context(), true)
		require.NoError(t, err)
		require.InDelta(t, want[i], got, 1e-4, "step %d", i)
	}
}

func TestProductsAreComputedOnOneThread(t *testing.T) {
	n, err := cpu.Threads()
	require.NoError(t, err)
	require.Equal(t, 1, n)
}
