package mesh_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/collective/tensors"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/parallel/internal/grouptest"
	"github.com/weft-project/weft/parallel/mesh"
	"github.com/weft-project/weft/parallel/shard"
)

const (
	width, hidden, classes = 8, 12, 4
	rowsOfData, steps      = 60, 30
)

// batch is some rows, which are made of their numbers.
func batch(rows []int) (x, y *autodiff.Tensor) {
	var xs []float32
	var ys []int64
	for _, row := range rows {
		src := rand.New(rand.NewPCG(uint64(row), 7))
		class := src.IntN(classes)
		for f := range width {
			v := float32(src.NormFloat64())
			if f%classes == class {
				v += 2
			}
			xs = append(xs, v)
		}
		ys = append(ys, int64(class))
	}
	return autodiff.New(xs, len(rows), width), autodiff.New(ys)
}

// block is a part of a transformer without attention: x + GELU(x·up)·down.
type block struct{ up, down *autodiff.Tensor }

func newBlocks() (all []block) {
	src := rand.New(rand.NewPCG(3, 3))
	for range 2 {
		all = append(all, block{autodiff.NormalFrom(src, 0.3, width, hidden).RequireGrad(), autodiff.NormalFrom(src, 0.3, hidden, width).RequireGrad()})
	}
	return all
}

func newHead() *nn.Linear { return nn.NewLinear(rand.New(rand.NewPCG(5, 5)), width, classes) }

func (b block) forward(x *autodiff.Tensor) *autodiff.Tensor {
	return autodiff.Add(x, autodiff.MatMul(autodiff.GELU(autodiff.MatMul(x, b.up)), b.down))
}

func (b block) params() []*autodiff.Tensor { return []*autodiff.Tensor{b.up, b.down} }

var rule = optim.SGD{LR: 0.2}

// alone is the losses of one process, of the rows of each step.
func alone(t *testing.T, data parallel.Rows) (losses []float64) {
	blocks, head := newBlocks(), newHead()
	params := append(append(blocks[0].params(), blocks[1].params()...), head.Params()...)
	opt, err := optim.New(rule, params...)
	require.NoError(t, err)
	for step := range uint64(steps) {
		x, y := batch(data.Of(step, 0, 1))
		loss := autodiff.CrossEntropy(head.Forward(blocks[1].forward(blocks[0].forward(x))), y)
		grads, err := autodiff.Backward(loss)
		require.NoError(t, err)
		require.NoError(t, opt.Step(grads.All()))
		v, err := loss.Item()
		require.NoError(t, err)
		losses = append(losses, v)
	}
	require.Less(t, losses[steps-1], losses[0]/2)
	return losses
}

// stage is what a worker of a pipeline does.
type stage struct {
	gs   *mesh.Groups
	s    *shard.Shards
	opt  *optim.Local
	part func(x *autodiff.Tensor, k int) *autodiff.Tensor // its k-th layer
}

func newStage(c context.Context, gs *mesh.Groups) (*stage, error) {
	b := newBlocks()[gs.Place.Pipeline]
	layers := [][]*autodiff.Tensor{b.params()}
	run := &stage{gs: gs, part: func(x *autodiff.Tensor, _ int) *autodiff.Tensor { return b.forward(x) }}
	if gs.Place.Pipeline == 1 {
		head := newHead()
		layers = append(layers, head.Params())
		run.part = func(x *autodiff.Tensor, k int) *autodiff.Tensor {
			if k == 1 {
				return head.Forward(x)
			}
			return b.forward(x)
		}
	}
	var err error
	if run.s, err = shard.New(c, gs.Shard, layers, shard.Config{Across: gs.Across}); err != nil {
		return nil, err
	}
	run.opt, err = optim.NewGroups(run.s.Named(rule))
	return run, err
}

func (k *stage) forward(c context.Context, x *autodiff.Tensor) *autodiff.Tensor {
	for n := range k.s.Layers() {
		x = k.s.Layer(c, n, func() *autodiff.Tensor { return k.part(x, n) })
	}
	return x
}

// send sends a tensor to the other stage.
func (k *stage) send(c context.Context, to int, x *autodiff.Tensor) error {
	v, err := autodiff.Values[float32](x)
	if err != nil {
		return err
	}
	return collective.Send(c, k.gs.Pipeline, to, 0, v)
}

func (k *stage) receive(c context.Context, from, rows int) (*autodiff.Tensor, error) {
	v, _, err := collective.RecvNew[float32](c, k.gs.Pipeline, from, 0)
	if err != nil {
		return nil, err
	}
	return autodiff.New(v, rows, width), nil
}

// step gives the loss of this worker's rows, on the last stage.
func (k *stage) step(c context.Context, rows []int) (v float64, err error) {
	x, y := batch(rows)
	run := func(float64) error { return nil }
	switch {
	case len(rows) == 0:
		err = k.s.Skip(c)
	case k.gs.Place.Pipeline == 0:
		h := k.forward(c, x)
		if err = k.send(c, 1, h); err != nil {
			return 0, err
		}
		run = func(float64) error { // the last stage has weighted what it sends
			gh, err := k.receive(c, 1, len(rows))
			if err != nil {
				return err
			}
			_, err = autodiff.BackwardWith(autodiff.Options{Grads: []*autodiff.Tensor{gh}}, h)
			return err
		}
	default:
		h, err := k.receive(c, 0, len(rows))
		if err != nil {
			return 0, err
		}
		h = h.RequireGrad()
		loss := autodiff.CrossEntropy(k.forward(c, h), y)
		if v, err = loss.Item(); err != nil {
			return 0, err
		}
		run = func(weight float64) error {
			first := autodiff.FullLike(loss, weight)
			grads, err := autodiff.BackwardWith(autodiff.Options{Grads: []*autodiff.Tensor{first}}, loss)
			if err != nil {
				return err
			}
			return k.send(c, 0, grads.Of(h))
		}
	}
	if err != nil {
		return 0, err
	}
	grads, err := k.s.BackwardBy(c, len(rows), run)
	if err != nil {
		return 0, err
	}
	return v, k.opt.Step(grads)
}

func TestAPipelineOfSpreadStagesLosesWhatOneProcessDoes(t *testing.T) {
	for name, m := range map[string]mesh.Mesh{
		"2 stages × 2":        {Pipeline: 2, Data: 2},
		"2 stages × 4 hybrid": {Pipeline: 2, Data: 4, Shard: 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := grouptest.New(t, m.Size())
			data := parallel.Rows{Seed: 1, N: rowsOfData, Batch: 10}
			got := make([][]float64, m.Size()) // of this rank's rows, times their number
			w.Each(func(r int) error {
				gs, err := m.Open(t.Context(), w.Gs[r])
				if err != nil {
					return err
				}
				k, err := newStage(t.Context(), gs)
				if err != nil {
					return err
				}
				for step := range uint64(steps) {
					rows := data.Of(step, gs.Place.Data, m.Data)
					v, err := k.step(t.Context(), rows)
					if err != nil {
						return fmt.Errorf("step %d: %w", step, err)
					}
					got[r] = append(got[r], v*float64(len(rows)))
				}
				return gs.Close()
			})
			for step, want := range alone(t, data) {
				sum := 0.0
				for r := range got {
					sum += got[r][step]
				}
				require.InDelta(t, want, sum/10, 1e-5, "step %d", step)
			}
		})
	}
}

// columns are some columns of a matrix, as a parameter; rows of its transpose.
func columns(w *autodiff.Tensor, part, of int, transposed bool) *autodiff.Tensor {
	v, _ := autodiff.Values[float32](w)
	s := w.Shape()
	lo, hi := collective.Share(hidden, of, part)
	if transposed {
		return autodiff.New(v[lo*s[1]:hi*s[1]], hi-lo, s[1]).RequireGrad()
	}
	var out []float32
	for r := range s[0] {
		out = append(out, v[r*s[1]+lo:r*s[1]+hi]...)
	}
	return autodiff.New(out, s[0], hi-lo).RequireGrad()
}

func TestSpreadLayersWhoseWeightsAreCutLoseWhatOneProcessDoes(t *testing.T) {
	m := mesh.Mesh{Data: 2, Tensor: 2}
	w := grouptest.New(t, m.Size())
	data := parallel.Rows{Seed: 1, N: rowsOfData, Batch: 10}
	got := make([][]float64, m.Size())
	w.Each(func(r int) error {
		gs, err := m.Open(t.Context(), w.Gs[r])
		if err != nil {
			return err
		}
		var layers [][]*autodiff.Tensor
		var blocks []block
		for _, b := range newBlocks() {
			b = block{columns(b.up, gs.Place.Tensor, 2, false), columns(b.down, gs.Place.Tensor, 2, true)}
			blocks, layers = append(blocks, b), append(layers, b.params())
		}
		head := newHead()
		s, err := shard.New(t.Context(), gs.Shard, append(layers, head.Params()), shard.Config{})
		if err != nil {
			return err
		}
		opt, err := optim.NewGroups(s.Named(rule))
		if err != nil {
			return err
		}
		for step := range uint64(steps) {
			rows := data.Of(step, gs.Place.Data, m.Data)
			err := w.Ws[r].Pass(t.Context(), func(c context.Context) error {
				v, err := cutStep(c, gs, s, opt, blocks, head, rows)
				got[r] = append(got[r], v*float64(len(rows)))
				return err
			})
			if err != nil {
				return fmt.Errorf("step %d: %w", step, err)
			}
		}
		return gs.Close()
	})
	for step, want := range alone(t, data) {
		require.InDelta(t, want, (got[0][step]+got[2][step])/10, 1e-5, "step %d", step)
		require.Equal(t, got[0][step], got[1][step])
	}
}

// cutStep is a step in a pass of all members of a tensor group.
func cutStep(c context.Context, gs *mesh.Groups, s *shard.Shards, opt *optim.Local, blocks []block, head *nn.Linear, rows []int) (float64, error) {
	x, y := batch(rows)
	for k, b := range blocks {
		x = s.Layer(c, k, func() *autodiff.Tensor {
			h := autodiff.GELU(autodiff.MatMul(tensors.Enter(c, gs.Tensor, x), b.up))
			return autodiff.Add(x, tensors.Leave(c, gs.Tensor, autodiff.MatMul(h, b.down)))
		})
	}
	loss := autodiff.CrossEntropy(s.Layer(c, len(blocks), func() *autodiff.Tensor { return head.Forward(x) }), y)
	grads, err := s.BackwardBy(c, len(rows), func(weight float64) error {
		return ctx.BackwardWith(c, ctx.Options{Grads: []*autodiff.Tensor{autodiff.FullLike(loss, weight)}}, loss)
	})
	if err != nil {
		return 0, err
	}
	if err := opt.Step(grads); err != nil {
		return 0, err
	}
	return loss.Item()
}
