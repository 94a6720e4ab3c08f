package parallel_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/rpc"
)

// world is the members of a group in this process.
type world struct {
	t  *testing.T
	ws []*rpc.Worker
	gs []*collective.Group
}

func newWorld(t *testing.T, size int) *world {
	t.Helper()
	return grouped(t, rpctest.World(t, rpctest.Net(), size))
}

func grouped(t *testing.T, ws []*rpc.Worker) *world {
	t.Helper()
	w := &world{t, ws, make([]*collective.Group, len(ws))}
	w.each(func(r int) (err error) {
		w.gs[r], err = collective.Open(t.Context(), ws[r], "replicas")
		return err
	})
	t.Cleanup(func() {
		for _, g := range w.gs {
			require.NoError(t, g.Close())
		}
	})
	return w
}

// attempt does something on all ranks at once.
func (w *world) attempt(fn func(r int) error) []error {
	return rpctest.Attempt(len(w.ws), fn)
}

func (w *world) each(fn func(r int) error) {
	w.t.Helper()
	for r, err := range w.attempt(fn) {
		require.NoError(w.t, err, "rank %d", r)
	}
}

const (
	features, classes = 24, 5
	rowsOfData        = 200
)

// data are rows that a model can learn. Nobody writes there.
var data = sync.OnceValues(func() (x []float32, y []int64) {
	src := rand.New(rand.NewPCG(4, 4))
	for range rowsOfData {
		class := src.IntN(classes)
		for f := range features {
			x = append(x, float32(src.NormFloat64()))
			if f%classes == class {
				x[len(x)-1]++
			}
		}
		y = append(y, int64(class))
	}
	return x, y
})

func newModel(seed uint64) nn.Sequential {
	return nn.NewMLP(rand.New(rand.NewPCG(seed, 1)), autodiff.ReLU, features, 32, 16, classes)
}

// lossOf is the mean loss over some rows; nil of none.
func lossOf(model nn.Sequential, owner *autodiff.Arena, rows []int) (*autodiff.Tensor, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	x, y := data()
	var xs []float32
	var ys []int64
	for _, row := range rows {
		xs, ys = append(xs, x[row*features:(row+1)*features]...), append(ys, y[row])
	}
	in := autodiff.New(xs, len(rows), features)
	if err := owner.Adopt(in); err != nil {
		return nil, err
	}
	return autodiff.CrossEntropy(model.Forward(in), autodiff.New(ys)), nil
}

// noted is after how many steps the loss over all data is looked at, which takes longer than a
// step. Runs have a multiple of it.
const noted = 4

// trained is what a rank makes of some steps: on rank 0 the loss over all data, and parameters.
type trained struct {
	losses []float64
	params [][]float32
}

// note is called after each step.
func (k *trained) note(step uint64, model nn.Sequential) error {
	if step%noted < noted-1 {
		return nil
	}
	var all []int
	for row := range rowsOfData {
		all = append(all, row)
	}
	owner := autodiff.NewArena("test")
	defer owner.Free()
	loss, err := lossOf(model, owner, all)
	if err != nil {
		return err
	}
	v, err := loss.Item()
	k.losses = append(k.losses, v)
	return err
}

func (k *trained) finish(model nn.Sequential) error {
	for _, p := range model.Params() {
		v, err := autodiff.Values[float32](p)
		if err != nil {
			return err
		}
		k.params = append(k.params, v)
	}
	return nil
}

// rule has no momentum: that makes more of what rounding does, until it is more than 1e-6.
var rule = optim.SGD{LR: 0.1}

// alone trains in one process.
func alone(t *testing.T, steps int, rowsAt func(step uint64) []int) (k trained) {
	t.Helper()
	model := newModel(1)
	opt, err := optim.New(rule, model.Params()...)
	require.NoError(t, err)
	for step := range uint64(steps) {
		owner := autodiff.NewArena("step")
		loss, err := lossOf(model, owner, rowsAt(step))
		require.NoError(t, err)
		grads, err := autodiff.Backward(loss)
		require.NoError(t, err)
		require.NoError(t, opt.Step(grads.All()))
		owner.Free()
		require.NoError(t, k.note(step, model))
	}
	return k
}

// together trains on a rank.
func together(
	c context.Context, g *collective.Group, config parallel.Config, steps int,
	rowsAt func(step uint64, rank int) []int,
) (k trained, err error) {
	model := newModel(uint64(1 + g.Rank())) // rank 0's is what all get
	replicas, err := parallel.Replicate(c, g, model.Params(), config)
	if err != nil {
		return k, err
	}
	opt, err := optim.New(rule, model.Params()...)
	if err != nil {
		return k, err
	}
	for step := range uint64(steps) {
		if err := oneStep(c, replicas, opt, model, rowsAt(step, g.Rank())); err != nil {
			return k, fmt.Errorf("step %d: %w", step, err)
		}
		if g.Rank() > 0 {
			continue // it has the same parameters, or the test fails
		}
		if err := k.note(step, model); err != nil {
			return k, err
		}
	}
	return k, k.finish(model)
}

func oneStep(
	c context.Context, replicas *parallel.Replicas, opt *optim.Local, model nn.Sequential, rows []int,
) error {
	owner := autodiff.NewArena("step")
	defer owner.Free()
	loss, err := lossOf(model, owner, rows)
	if err != nil {
		return err
	}
	grads, err := replicas.Backward(c, loss, len(rows))
	if err != nil {
		return err
	}
	return opt.Step(grads)
}

// train trains on all ranks, which have the same parameters then.
func (w *world) train(
	config parallel.Config, steps int, rowsAt func(step uint64, rank int) []int,
) (losses []float64) {
	t := w.t
	t.Helper()
	all := make([]trained, len(w.gs))
	w.each(func(r int) (err error) {
		all[r], err = together(t.Context(), w.gs[r], config, steps, rowsAt)
		return err
	})
	for r := range all {
		for i, p := range all[r].params {
			require.Equal(t, device.Bytes(all[0].params[i]), device.Bytes(p), "rank %d", r)
		}
	}
	return all[0].losses
}

// requireTogether trains on all ranks, and compares with the losses of one process.
func (w *world) requireTogether(
	config parallel.Config, want []float64, rowsAt func(step uint64, rank int) []int,
) {
	w.t.Helper()
	require.InDeltaSlice(w.t, want, w.train(config, noted*len(want), rowsAt), 1e-6)
	require.Less(w.t, want[len(want)-1], want[0])
}

// rowsOfAll are those of so many ranks.
func rowsOfAll(size int, rowsAt func(step uint64, rank int) []int) func(step uint64) []int {
	return func(step uint64) (rows []int) {
		for r := range size {
			rows = append(rows, rowsAt(step, r)...)
		}
		return rows
	}
}

func params(lens ...int) (all []*autodiff.Tensor) {
	for _, n := range lens {
		all = append(all, autodiff.New(make([]float32, n)).RequireGrad())
	}
	return all
}
