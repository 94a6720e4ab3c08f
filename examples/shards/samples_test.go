package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/collective/tensors"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/elastic/checkpoint"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel/mesh"
	"github.com/weft-project/weft/parallel/shard"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
)

// save writes a checkpoint of a step. Workers meet in a store, as that of elastic.Join.
func save(c context.Context, dir *checkpoint.Dir, meet store.Store, step int64, g *collective.Group, shards *shard.Shards, opt *optim.Local) error {
	pieces, notes, err := shards.Pieces(opt)
	if err != nil {
		return err
	}
	return dir.Save(c, checkpoint.Part{Step: step, Rank: g.Rank(), World: g.Size(), Store: meet, Pieces: pieces, Notes: notes})
}

// resume goes on from the newest checkpoint.
func resume(c context.Context, dir *checkpoint.Dir, shards *shard.Shards, opt *optim.Local) (step int64, err error) {
	k, err := dir.Latest()
	if err != nil {
		return 0, err
	}
	defer func() { _ = k.Close() }() // it was only read
	return k.Step, shards.Load(c, k, opt)
}

// clipped steps with the gradients of all shards clipped together.
func clipped(c context.Context, g *collective.Group, opt *optim.Local, grads shard.Gradients, most float64) error {
	norm, err := opt.GradNorm(grads) // of this worker's shards
	if err != nil {
		return err
	}
	squares := []float64{norm * norm}
	if err := collective.AllReduce(c, g, squares, collective.Sum); err != nil {
		return err
	}
	factor, err := optim.ClipFactor(math.Sqrt(squares[0]), most)
	if err != nil {
		return err
	}
	return opt.StepScaled(grads, factor)
}

// copies has two workers share one copy of the model.
func copies(c context.Context, g *collective.Group, layers [][]*autodiff.Tensor) (*mesh.Groups, *shard.Shards, error) {
	groups, err := mesh.Mesh{Data: g.Size(), Shard: 2}.Open(c, g)
	if err != nil {
		return nil, nil, err
	}
	shards, err := shard.New(c, groups.Shard, layers, shard.Config{Across: groups.Across})
	return groups, shards, err
}

// firstStage goes back from what the next stage sends. That has weighted it by its rows.
func firstStage(c context.Context, groups *mesh.Groups, shards *shard.Shards, h *autodiff.Tensor, rows int) (shard.Gradients, error) {
	return shards.BackwardBy(c, rows, func(float64) error {
		v, _, err := collective.RecvNew[float32](c, groups.Pipeline, 1, 0)
		if err != nil {
			return err
		}
		gh := autodiff.New(v, h.Shape()...)
		_, err = autodiff.BackwardWith(autodiff.Options{Grads: []*autodiff.Tensor{gh}}, h)
		return err
	})
}

// cutBackward goes back through the members that have the other parts of a layer's weights.
func cutBackward(c context.Context, shards *shard.Shards, loss *autodiff.Tensor, rows int) (shard.Gradients, error) {
	return shards.BackwardBy(c, rows, func(weight float64) error {
		first := autodiff.FullLike(loss, weight)
		return ctx.BackwardWith(c, ctx.Options{Grads: []*autodiff.Tensor{first}}, loss)
	})
}

// together has so many workers do something in a group.
func together(t *testing.T, size int, do func(w *rpc.Worker, g *collective.Group) error) {
	t.Helper()
	ws := rpctest.World(t, rpctest.Net(), size)
	for r, err := range rpctest.Attempt(size, func(r int) (err error) {
		g, err := collective.Open(t.Context(), ws[r], "all")
		if err != nil {
			return err
		}
		return errors.Join(do(ws[r], g), g.Barrier(t.Context()), g.Close())
	}) {
		require.NoError(t, err, "rank %d", r)
	}
}

// vector is a layer of one vector of ones.
func vector(n int) [][]*autodiff.Tensor {
	return [][]*autodiff.Tensor{{autodiff.Ones(device.Float32, n).RequireGrad()}}
}

// stepped makes a step of a rate of 1 with gradients, and gives the whole vector.
func stepped(c context.Context, shards *shard.Shards, opt *optim.Local, layers [][]*autodiff.Tensor, grads shard.Gradients) (v []float32, err error) {
	if err := opt.Step(grads); err != nil {
		return nil, err
	}
	err = shards.With(c, 0, func() error { v, err = autodiff.Values[float32](layers[0][0]); return err })
	return v, errors.Join(err, shards.Finish(c))
}

func squared(c context.Context, shards *shard.Shards, layers [][]*autodiff.Tensor) *autodiff.Tensor {
	return shards.Layer(c, 0, func() *autodiff.Tensor { return autodiff.Sum(autodiff.Mul(layers[0][0], layers[0][0])) })
}

// spread is a vector that is spread over a group, and the optimizer of this worker's shard.
func spread(c context.Context, g *collective.Group, layers [][]*autodiff.Tensor) (*shard.Shards, *optim.Local, error) {
	shards, err := shard.New(c, g, layers, shard.Config{})
	if err != nil {
		return nil, nil, err
	}
	opt, err := optim.NewGroups(shards.Named(optim.SGD{LR: 1}))
	return shards, opt, err
}

func TestShardsAreSavedAndResumed(t *testing.T) {
	dir, err := checkpoint.Open(filepath.Join(t.TempDir(), "all"), checkpoint.Config{})
	require.NoError(t, err)
	meet := store.NewMemory()
	defer meet.Close()
	t.Run("saved", func(t *testing.T) {
		together(t, 2, func(_ *rpc.Worker, g *collective.Group) error {
			c, layers := t.Context(), vector(50)
			shards, opt, err := spread(c, g, layers)
			if err != nil {
				return err
			}
			grads, err := shards.Backward(c, squared(c, shards, layers), 1)
			if err != nil {
				return err
			}
			if v, err := stepped(c, shards, opt, layers, grads); err != nil || v[49] != 1-2 {
				return fmt.Errorf("the step gave %v: %w", v, err)
			}
			return save(c, dir, meet, 1, g, shards, opt)
		})
	})
	t.Run("resumed", func(t *testing.T) {
		together(t, 1, func(_ *rpc.Worker, g *collective.Group) error {
			c, layers := t.Context(), vector(50)
			shards, opt, err := spread(c, g, layers)
			if err != nil {
				return err
			}
			step, err := resume(c, dir, shards, opt)
			if err != nil || step != 1 {
				return fmt.Errorf("it resumes at step %d: %w", step, err)
			}
			err = shards.With(c, 0, func() error {
				v, err := autodiff.Values[float32](layers[0][0])
				if err != nil || v[0] != -1 || v[49] != -1 {
					err = fmt.Errorf("the vector is %v: %w", v, err)
				}
				return err
			})
			return errors.Join(err, shards.Finish(c))
		})
	})
}

func TestGradientsOfAllShardsAreClippedTogether(t *testing.T) {
	together(t, 3, func(_ *rpc.Worker, g *collective.Group) error {
		c, layers := t.Context(), vector(100)
		shards, opt, err := spread(c, g, layers)
		if err != nil {
			return err
		}
		grads, err := shards.Backward(c, squared(c, shards, layers), 1) // a hundred of 2: their norm is 20
		if err == nil {
			err = clipped(c, g, opt, grads, 5)
		}
		if err != nil {
			return err
		}
		for _, part := range shards.Params() {
			v, err := autodiff.Values[float32](part)
			for _, x := range v {
				if math.Abs(float64(x)-(1-2*5.0/20)) > 1e-6 {
					return fmt.Errorf("the part is %v: %w", v, err)
				}
			}
		}
		return shards.Finish(c)
	})
}

func TestTwoCopiesOfShardsMakeTheSameStep(t *testing.T) {
	together(t, 4, func(_ *rpc.Worker, g *collective.Group) error {
		c, layers := t.Context(), vector(5)
		groups, shards, err := copies(c, g, layers)
		if err != nil {
			return err
		}
		opt, err := optim.NewGroups(shards.Named(optim.SGD{LR: 1}))
		if err != nil {
			return err
		}
		loss := autodiff.Scale(squared(c, shards, layers), float64(g.Rank()))
		grads, err := shards.Backward(c, loss, 1)
		if err != nil {
			return err
		}
		v, err := stepped(c, shards, opt, layers, grads)
		if err != nil || v[0] != 1-2*1.5 { // of the mean of 0 to 3
			err = fmt.Errorf("the step gave %v: %w", v, err)
		}
		return errors.Join(err, groups.Close())
	})
}

func TestAStageGoesBackFromWhatTheNextOneSends(t *testing.T) {
	together(t, 2, func(_ *rpc.Worker, g *collective.Group) error {
		c, layers := t.Context(), vector(3)
		groups, err := mesh.Mesh{Pipeline: 2}.Open(c, g)
		if err != nil {
			return err
		}
		if groups.Place.Pipeline == 1 {
			return errors.Join(collective.Send(c, groups.Pipeline, 0, 0, []float32{1, 2, 3}), groups.Pipeline.Barrier(c), groups.Close())
		}
		shards, err := shard.New(c, groups.Shard, layers, shard.Config{})
		if err != nil {
			return err
		}
		h := shards.Layer(c, 0, func() *autodiff.Tensor { return autodiff.Scale(layers[0][0], 2) })
		grads, err := firstStage(c, groups, shards, h, 1)
		if err != nil {
			return err
		}
		v, err := autodiff.Values[float32](grads[shards.Params()[0]])
		if err != nil || v[2] != 6 {
			err = fmt.Errorf("the gradient is %v: %w", v, err)
		}
		return errors.Join(err, groups.Pipeline.Barrier(c), groups.Close())
	})
}

func TestAPassGoesBackThroughLayersThatAreCut(t *testing.T) {
	together(t, 2, func(w *rpc.Worker, g *collective.Group) error {
		c, layers := t.Context(), vector(3)
		groups, err := mesh.Mesh{Tensor: 2}.Open(c, g)
		if err != nil {
			return err
		}
		shards, err := shard.New(c, groups.Shard, layers, shard.Config{})
		if err != nil {
			return err
		}
		err = w.Pass(c, func(c context.Context) error {
			x := autodiff.New([]float32{1, 2, 3})
			y := shards.Layer(c, 0, func() *autodiff.Tensor {
				return tensors.Leave(c, groups.Tensor, autodiff.Mul(tensors.Enter(c, groups.Tensor, x), layers[0][0]))
			})
			grads, err := cutBackward(c, shards, autodiff.Sum(y), 1)
			if err != nil {
				return err
			}
			v, err := autodiff.Values[float32](grads[shards.Params()[0]])
			if err != nil || v[2] != 3 {
				err = fmt.Errorf("the gradient is %v: %w", v, err)
			}
			return err
		})
		return errors.Join(err, groups.Close())
	})
}
