package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/collective/tensors"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/parallel/loader"
	"github.com/weft-project/weft/rpc"
)

// What is here stands in docs/data-parallel.md, too.

func sequences(file string, rank, size int, from uint64) (*loader.Loader[*autodiff.Tensor], *loader.Sequences, error) {
	text, err := loader.OpenTokens(file, loader.Tokens{Width: 2, Length: 65, Stride: 64}) // 64 tokens, and what follows each
	if err != nil {
		return nil, nil, err
	}
	l, err := loader.New(text, func(rows [][]int32) (*autodiff.Tensor, error) {
		return autodiff.New(slices.Concat(rows...), len(rows), 65), nil
	}, loader.Config{Seed: 1, Batch: 32, Rank: rank, Size: size, First: from})
	return l, text, err
}

func TestSequencesComeInBatches(t *testing.T) {
	var raw []byte
	for i := range uint16(64*10 + 1) {
		raw = binary.LittleEndian.AppendUint16(raw, i)
	}
	file := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(file, raw, 0o600))
	l, text, err := sequences(file, 1, 2, 7)
	require.NoError(t, err)
	b, err := l.Next(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 7, b.Step)
	require.Equal(t, parallel.Rows{Seed: 1, N: 10, Batch: 32}.Of(7, 1, 2), b.Rows)
	v, err := autodiff.Values[int32](b.Of)
	require.NoError(t, err)
	for i, row := range b.Rows {
		require.EqualValues(t, 64*row, v[65*i])
		require.EqualValues(t, 64*row+64, v[65*i+64])
	}
	require.NoError(t, l.Close())
	require.NoError(t, text.Close())
}

// model is a linear one of normalised rows.
type model struct {
	norm *nn.BatchNorm
	out  *nn.Linear
	opt  *optim.Local
}

type batchOf struct {
	x, y *autodiff.Tensor
	rows int
}

func newModel() (m *model, err error) {
	m = &model{norm: nn.NewBatchNorm(3), out: nn.NewLinear(rand.New(rand.NewPCG(1, 1)), 3, 1)}
	m.opt, err = optim.New(optim.SGD{LR: 0.1}, m.params()...)
	return m, err
}

func (m *model) params() []*autodiff.Tensor { return slices.Concat(m.norm.Params(), m.out.Params()) }

func (m *model) loss(x, y *autodiff.Tensor) *autodiff.Tensor {
	return nn.MSE(m.out.Forward(m.norm.Forward(x)), y)
}

func normed(c context.Context, w *rpc.Worker, g *collective.Group, r *parallel.Replicas, m *model, b batchOf) error {
	return w.Pass(c, func(c context.Context) error {
		m.norm.Total = func(sum *autodiff.Tensor) *autodiff.Tensor { return tensors.AllReduce(c, g, sum, collective.Sum) }
		loss := m.loss(ctx.Own(c, b.x), b.y)
		grads, err := r.BackwardPass(c, loss, b.rows)
		if err != nil {
			return err
		}
		return m.opt.Step(grads)
	})
}

func together(c context.Context, r *parallel.Replicas, opt *optim.Local, rows int) error {
	own, err := ctx.Gradients(c) // that the pass has left on this worker
	if err != nil {
		return err
	}
	grads, err := r.Combine(c, own, rows)
	if err != nil {
		return err
	}
	return opt.Step(grads)
}

// rowsOfStep are the rows lo to hi of a step.
func rowsOfStep(step, lo, hi int) batchOf {
	src := rand.New(rand.NewPCG(uint64(step), 3))
	var x, y []float32
	for range 8 {
		sum := float32(1)
		for range 3 {
			v := float32(src.NormFloat64())
			x, sum = append(x, v), sum+v
		}
		y = append(y, sum)
	}
	return batchOf{autodiff.New(x[3*lo:3*hi], hi-lo, 3), autodiff.New(y[lo:hi], hi-lo, 1), hi - lo}
}

func TestWhatThePageShowsTrainsAsOneProcess(t *testing.T) {
	alone, err := newModel()
	require.NoError(t, err)
	step := func(b batchOf) {
		grads, err := autodiff.Backward(alone.loss(b.x, b.y))
		require.NoError(t, err)
		require.NoError(t, alone.opt.Step(grads.All()))
	}
	for n := range 5 {
		step(rowsOfStep(n, 0, 8))
	}
	want, err := autodiff.Values[float32](alone.out.W)
	require.NoError(t, err)
	ws := rpctest.World(t, rpctest.Net(), 2)
	for r, err := range rpctest.Attempt(2, func(r int) error { return trainAsShown(t.Context(), ws[r], want) }) {
		require.NoError(t, err, "rank %d", r)
	}
}

func trainAsShown(c context.Context, w *rpc.Worker, want []float32) (err error) {
	g, err := collective.Open(c, w, "page")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Barrier(c), g.Close()) }()
	m, err := newModel()
	if err != nil {
		return err
	}
	r, err := parallel.Replicate(c, g, m.params(), parallel.Config{})
	if err != nil {
		return err
	}
	cut := []int{0, 3, 8}
	for n := range 5 {
		if err := normed(c, w, g, r, m, rowsOfStep(n, cut[g.Rank()], cut[g.Rank()+1])); err != nil {
			return err
		}
	}
	got, err := autodiff.Values[float32](m.out.W)
	if err != nil {
		return err
	}
	for i := range want {
		if math.Abs(float64(got[i]-want[i])) > 1e-5 {
			return fmt.Errorf("%v; expected %v", got, want)
		}
	}
	m.norm.Total = nil
	return w.Pass(c, func(c context.Context) error { // and a step of gradients that a pass has left
		b := rowsOfStep(9, 0, 4)
		if err := ctx.Backward(c, m.loss(ctx.Own(c, b.x), b.y)); err != nil {
			return err
		}
		return together(c, r, m.opt, b.rows)
	})
}
