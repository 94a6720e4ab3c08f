package resilient_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/parallel/resilient"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport/simnet"
)

const (
	features, classes = 24, 5
	rowsOfData        = 200
)

var rows = parallel.Rows{Seed: 3, N: rowsOfData, Batch: 24}

// data are rows that a model can learn.
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

// learner is a model with its optimizer.
type learner struct {
	model nn.Sequential
	opt   *optim.Local
}

func newLearner(seed uint64) learner { return learnerOf(seed, 32) }

// newWiderLearner has another model.
func newWiderLearner() learner { return learnerOf(1, 33) }

func learnerOf(seed uint64, hidden int) learner {
	l := learner{model: nn.NewMLP(rand.New(rand.NewPCG(seed, 1)), autodiff.GELU, features, hidden, 16, classes)}
	opt, err := optim.NewGroups(optim.Named(optim.SGD{LR: 0.1, Momentum: 0.9}, nn.Parameters(l.model)))
	if err != nil {
		panic(err)
	}
	l.opt = opt
	return l
}

func (l learner) config() resilient.Config {
	return resilient.Config{Params: nn.Parameters(l.model), Optimizer: l.opt, Logger: slog.New(slog.DiscardHandler)}
}

// loss is the mean loss over some rows.
func (l learner) loss(_ context.Context, rows []int) (*autodiff.Tensor, error) {
	x, y := data()
	var xs []float32
	var ys []int64
	for _, row := range rows {
		xs, ys = append(xs, x[row*features:(row+1)*features]...), append(ys, y[row])
	}
	in := autodiff.New(xs, len(rows), features)
	if err := autodiff.NewArena("step").Adopt(in); err != nil {
		return nil, err
	}
	return autodiff.CrossEntropy(l.model.Forward(in), autodiff.New(ys)), nil
}

func (l learner) bytes() (all []byte, err error) {
	for _, p := range l.model.Params() {
		v, err := autodiff.Values[float32](p)
		if err != nil {
			return nil, err
		}
		all = append(all, device.Bytes(v)...)
	}
	return all, nil
}

// step makes a step alone, and gives its loss.
func (l learner) step(c context.Context, step uint64) (float64, error) {
	loss, err := l.loss(c, rows.Of(step, 0, 1))
	if err != nil {
		return 0, err
	}
	defer loss.Owner().Free()
	v, err := loss.Item()
	if err != nil {
		return 0, err
	}
	grads, err := autodiff.Backward(loss)
	if err != nil {
		return 0, err
	}
	return v, l.opt.Step(grads.All())
}

// alone is the losses of a run of one process that nothing disturbs.
func alone(t *testing.T, steps int) (losses []float64) {
	t.Helper()
	l := newLearner(1)
	for step := range uint64(steps) {
		v, err := l.step(t.Context(), step)
		require.NoError(t, err)
		losses = append(losses, v)
	}
	return losses
}

// crowd is workers of this process on a simulated network. The first size of them found the team.
type crowd struct {
	t   *testing.T
	net *simnet.Net
	ws  []*rpc.Worker
}

func newCrowd(t *testing.T, size int) *crowd {
	t.Helper()
	net := rpctest.Net()
	return &crowd{t, net, rpctest.World(t, net, size)}
}

const teamName = "team"

// group is the founders' group.
func (w *crowd) group(c context.Context, rank, size int) (*collective.Group, error) {
	var names []string
	for _, o := range w.ws[:size] {
		names = append(names, o.Name())
	}
	return collective.Open(c, w.ws[rank], teamName, names...)
}

// found makes a team on a founder.
func (w *crowd) found(c context.Context, rank, size int, cfg resilient.Config) (*resilient.Team, error) {
	g, err := w.group(c, rank, size)
	if err != nil {
		return nil, err
	}
	return resilient.New(c, g, cfg)
}

// run is what a member made.
type run struct {
	first  uint64
	losses []float64
	params []byte
	err    error
}

// train has each worker do its part at once.
func (w *crowd) train(part func(rank int) run) []run {
	runs := make([]run, len(w.ws))
	rpctest.Attempt(len(w.ws), func(rank int) error {
		runs[rank] = part(rank)
		return nil
	})
	return runs
}

// train makes steps until there are so many, and closes the team; before is called before each.
func train(c context.Context, team *resilient.Team, l learner, steps int, before func(step uint64) error) (r run) {
	r.first = team.Next()
	for step := team.Next(); step < uint64(steps) && r.err == nil; step = team.Next() {
		var loss float64
		if before != nil {
			r.err = before(step)
		}
		if r.err == nil {
			loss, r.err = team.Step(c, step, rows, l.loss)
		}
		if r.err == nil {
			r.losses = append(r.losses, loss)
		}
	}
	if r.err == nil {
		r.params, r.err = l.bytes()
	}
	if err := team.Close(c); r.err == nil {
		r.err = err
	}
	return r
}

// within bounds what a test waits for, on a busy machine too.
func within(t *testing.T) context.Context {
	t.Helper()
	c, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return c
}

// requireUndisturbed says that nobody can tell from the losses that something has happened.
func requireUndisturbed(t *testing.T, want []float64, runs ...run) {
	t.Helper()
	for i, r := range runs {
		require.NoError(t, r.err, "member %d", i)
		require.InDeltaSlice(t, want[r.first:], r.losses, 1e-5, "member %d", i)
		require.Equal(t, runs[0].params, r.params, "member %d", i)
	}
}
