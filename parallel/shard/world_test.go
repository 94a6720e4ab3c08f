package shard_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/parallel/internal/grouptest"
	"github.com/weft-project/weft/parallel/shard"
)

// world is the members of a group in this process.
type world struct{ *grouptest.World }

func newWorld(t *testing.T, size int) *world {
	t.Helper()
	return &world{grouptest.New(t, size)}
}

const (
	features, classes = 12, 5
	rowsOfData        = 120
)

// table is rows that a model can learn.
type table struct {
	x []float32
	y []int64
}

func newTable() (d table) {
	src := rand.New(rand.NewPCG(4, 4))
	for range rowsOfData {
		class := src.IntN(classes)
		for f := range features {
			d.x = append(d.x, float32(src.NormFloat64()))
			if f%classes == class {
				d.x[len(d.x)-1]++
			}
		}
		d.y = append(d.y, int64(class))
	}
	return d
}

func (d table) rows(owner *autodiff.Arena, rows []int) (x, y *autodiff.Tensor, err error) {
	var xs []float32
	var ys []int64
	for _, row := range rows {
		xs, ys = append(xs, d.x[row*features:(row+1)*features]...), append(ys, d.y[row])
	}
	x = autodiff.New(xs, len(rows), features)
	return x, autodiff.New(ys), owner.Adopt(x)
}

// model is an MLP whose layers are cut at activations.
type model struct {
	nn.Sequential
	widths []int
}

func newModel(seed uint64, widths ...int) model {
	return model{nn.NewMLP(rand.New(rand.NewPCG(seed, 1)), autodiff.Tanh, widths...), widths}
}

// layers are the parameters of each linear layer.
func (m model) layers() (all [][]*autodiff.Tensor) {
	for k := 0; k < len(m.Sequential); k += 2 {
		all = append(all, m.Sequential[k].Params())
	}
	return all
}

func (m model) names() map[string]*autodiff.Tensor {
	return maps.Collect(nn.Parameters(m.Sequential))
}

// sharded runs the model layer by layer.
func (m model) sharded(c context.Context, s *shard.Shards, x *autodiff.Tensor) *autodiff.Tensor {
	for k := range s.Layers() {
		x = s.Layer(c, k, func() *autodiff.Tensor { return m.Sequential[2*k].Forward(x) })
		if 2*k+1 < len(m.Sequential) {
			x = m.Sequential[2*k+1].Forward(x)
		}
	}
	return x
}

// run is how ranks train, and what comes of it.
type run struct {
	widths []int
	rule   optim.Rule
	steps  int
	rowsAt func(step uint64, rank int) []int
	config func(r int) shard.Config
}

type trained struct {
	losses []float64 // of this rank's rows, before each step
	params [][]float32
}

// replicated trains with whole models, as package parallel does.
func (k run) replicated(c context.Context, g *collective.Group) (out trained, err error) {
	m := newModel(uint64(1+g.Rank()), k.widths...)
	replicas, err := parallel.Replicate(c, g, m.Params(), parallel.Config{})
	if err != nil {
		return out, err
	}
	opt, err := optim.New(k.rule, m.Params()...)
	if err != nil {
		return out, err
	}
	err = k.train(g.Rank(), &out, func(owner *autodiff.Arena, x, y *autodiff.Tensor, rows int) (*autodiff.Tensor, error) {
		var loss *autodiff.Tensor
		if rows > 0 {
			loss = autodiff.CrossEntropy(m.Forward(x), y)
		}
		grads, err := replicas.Backward(c, loss, rows)
		if err != nil {
			return nil, err
		}
		return loss, opt.Step(grads)
	})
	for _, p := range m.Params() {
		v, e := autodiff.Values[float32](p)
		if e != nil {
			return out, e
		}
		out.params = append(out.params, v)
	}
	return out, err
}

// train runs all steps.
func (k run) train(
	rank int, out *trained,
	step func(owner *autodiff.Arena, x, y *autodiff.Tensor, rows int) (*autodiff.Tensor, error),
) error {
	data := newTable()
	for n := range uint64(k.steps) {
		rows := k.rowsAt(n, rank)
		owner := autodiff.NewArena("step")
		x, y, err := data.rows(owner, rows)
		if err == nil {
			var loss *autodiff.Tensor
			if loss, err = step(owner, x, y, len(rows)); err == nil && loss != nil {
				var v float64
				v, err = loss.Item()
				out.losses = append(out.losses, v)
			}
		}
		owner.Free()
		if err != nil {
			return fmt.Errorf("step %d: %w", n, err)
		}
	}
	return nil
}

// spread trains with a spread model.
func (k run) spread(c context.Context, g *collective.Group) (out trained, err error) {
	m := newModel(uint64(1+g.Rank()), k.widths...)
	var config shard.Config
	if k.config != nil {
		config = k.config(g.Rank())
	}
	config.Names = m.names()
	s, err := shard.New(c, g, m.layers(), config)
	if err != nil {
		return out, err
	}
	opt, err := optim.NewGroups(s.Named(k.rule))
	if err != nil {
		return out, err
	}
	err = k.train(g.Rank(), &out, func(owner *autodiff.Arena, x, y *autodiff.Tensor, rows int) (*autodiff.Tensor, error) {
		loss, err := lossOf(c, s, m, x, y, rows)
		if err != nil {
			return nil, err
		}
		grads, err := s.Backward(c, loss, rows)
		if err != nil {
			return nil, err
		}
		return loss, opt.Step(grads)
	})
	if err != nil {
		return out, err
	}
	if out.params, err = valuesOf(c, s, m); err != nil {
		return out, err
	}
	return out, s.Finish(c)
}

// lossOf is the loss of a rank's rows, nil of none.
func lossOf(
	c context.Context, s *shard.Shards, m model, x, y *autodiff.Tensor, rows int,
) (*autodiff.Tensor, error) {
	if rows == 0 {
		return nil, s.Skip(c)
	}
	return autodiff.CrossEntropy(m.sharded(c, s, x), y), nil
}

// valuesOf are the whole parameters.
func valuesOf(c context.Context, s *shard.Shards, m model) (all [][]float32, err error) {
	for k, params := range m.layers() {
		err = s.With(c, k, func() error {
			for _, p := range params {
				v, err := autodiff.Values[float32](p)
				if err != nil {
					return err
				}
				all = append(all, v)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// replicated is what all ranks make with whole models.
func (w *world) replicated(k run) []trained {
	w.T.Helper()
	all := make([]trained, len(w.Gs))
	w.Each(func(r int) (err error) {
		all[r], err = k.replicated(w.T.Context(), w.Gs[r])
		return err
	})
	return all
}

// requireAsReplicated trains with a spread model, and compares bit for bit.
func (w *world) requireAsReplicated(what string, k run, want []trained) {
	w.T.Helper()
	got := make([]trained, len(w.Gs))
	w.Each(func(r int) (err error) {
		got[r], err = k.spread(w.T.Context(), w.Gs[r])
		return err
	})
	for r := range got {
		require.Equal(w.T, want[r], got[r], "%s, rank %d", what, r)
	}
}
