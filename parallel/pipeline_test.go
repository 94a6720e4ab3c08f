package parallel_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/rpc"
)

// part is a stage of a pipeline, and the same stage of the others.
type part struct {
	layers   nn.Sequential
	replicas *parallel.Replicas
	opt      *optim.Local
}

// step takes the gradients that the pass has left on this worker.
func (p *part) step(c context.Context, rows int) error {
	own, err := ctx.Gradients(c)
	if err != nil {
		return err
	}
	grads, err := p.replicas.Combine(c, own, rows)
	if err != nil {
		return err
	}
	return p.opt.Step(grads)
}

// lines are two pipelines of two stages: workers 0 and 1, and workers 2 and 3.
type lines struct {
	ws      []*rpc.Worker
	parts   [4]*part
	forward *rpc.Func[*autodiff.Tensor, *autodiff.Tensor]
	step    *rpc.Func[int, struct{}]
}

func newLines(t *testing.T) *lines {
	t.Helper()
	l := &lines{}
	at := func(c context.Context) *part {
		w, _ := rpc.FromContext(c)
		return l.parts[w.Rank()]
	}
	l.forward = rpc.Define("forward", func(c context.Context, x *autodiff.Tensor) (*autodiff.Tensor, error) {
		return at(c).layers.Forward(x), nil
	})
	l.step = rpc.Define("step", func(c context.Context, rows int) (struct{}, error) { return struct{}{}, at(c).step(c, rows) })
	l.ws = rpctest.World(t, rpctest.Net(), 4, l.forward, l.step)
	for r, err := range rpctest.Attempt(4, func(r int) (err error) {
		model := newModel(uint64(r)) // those of pipeline 0 are what both get
		p := &part{layers: [][]nn.Layer{model[:3], model[3:]}[r%2]}
		l.parts[r] = p
		g, err := collective.Open(t.Context(), l.ws[r], fmt.Sprint("stage", r%2), l.ws[r%2].Name(), l.ws[r%2+2].Name())
		if err != nil {
			return err
		}
		t.Cleanup(func() { require.NoError(t, g.Close()) })
		if p.replicas, err = parallel.Replicate(t.Context(), g, p.layers.Params(), parallel.Config{}); err == nil {
			p.opt, err = optim.New(rule, p.layers.Params()...)
		}
		return err
	}) {
		require.NoError(t, err, "worker %d", r)
	}
	return l
}

// train is a step of pipeline k.
func (l *lines) train(c context.Context, k int, rows []int) error {
	first := l.ws[2*k]
	return first.Pass(c, func(c context.Context) error {
		if len(rows) > 0 {
			x, y := batchOf(rows)
			logits, err := l.forward.Call(c, l.ws[2*k+1].Name(), l.parts[2*k].layers.Forward(ctx.Own(c, x)))
			if err != nil {
				return err
			}
			if err := ctx.Backward(c, autodiff.CrossEntropy(logits, y)); err != nil {
				return err
			}
		}
		under := make(chan error, 1)
		go func() {
			_, err := l.step.Call(c, l.ws[2*k+1].Name(), len(rows))
			under <- err
		}()
		return errors.Join(l.parts[2*k].step(c, len(rows)), <-under)
	})
}

func batchOf(rows []int) (x, y *autodiff.Tensor) {
	all, labels := data()
	var xs []float32
	var ys []int64
	for _, row := range rows {
		xs, ys = append(xs, all[row*features:(row+1)*features]...), append(ys, labels[row])
	}
	return autodiff.New(xs, len(rows), features), autodiff.New(ys)
}

func TestTwoPipelinesWhoseStagesAreReplicasLoseWhatOneProcessDoes(t *testing.T) {
	l := newLines(t)
	rows := parallel.Rows{Seed: 3, N: rowsOfData, Batch: 21}
	at := func(step uint64, k int) []int {
		switch mine := rows.Of(step, k, 2); {
		case step%7 == 6 && k == 1:
			return nil
		default:
			return mine
		}
	}
	model := newModel(0)
	copy(model[3:], newModel(1)[3:]) // what the second stage begins with
	opt, err := optim.New(rule, model.Params()...)
	require.NoError(t, err)
	for step := range uint64(30) {
		for k, err := range rpctest.Attempt(2, func(k int) error { return l.train(t.Context(), k, at(step, k)) }) {
			require.NoError(t, err, "step %d of pipeline %d", step, k)
		}
		loss, err := lossOf(model, nil, append(at(step, 0), at(step, 1)...))
		require.NoError(t, err)
		grads, err := autodiff.Backward(loss)
		require.NoError(t, err)
		require.NoError(t, opt.Step(grads.All()))
	}
	for k := range 2 {
		for i, p := range append(l.parts[2*k].layers.Params(), l.parts[2*k+1].layers.Params()...) {
			want, err := autodiff.Values[float32](model.Params()[i])
			require.NoError(t, err)
			got, err := autodiff.Values[float32](p)
			require.NoError(t, err)
			for j := range want {
				require.LessOrEqual(t, math.Abs(float64(want[j]-got[j])), 1e-5, "parameter %d of pipeline %d", i, k)
			}
		}
	}
}
