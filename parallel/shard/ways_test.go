package shard_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/parallel/internal/grouptest"
	"github.com/weft-project/weft/parallel/mesh"
	"github.com/weft-project/weft/parallel/shard"
	"github.com/weft-project/weft/transport"
)

func TestOnEveryLaneShardsTrainAsReplicasDo(t *testing.T) {
	rows := parallel.Rows{Seed: 1, N: rowsOfData, Batch: 11}
	k := run{
		widths: []int{features, 230, 231, classes}, rule: optim.Adam{LR: 0.01}, steps: 3,
		rowsAt: func(step uint64, rank int) []int { return rows.Of(step, rank, 3) },
	}
	want := newWorld(t, 3).replicated(k)
	for _, lane := range transport.LaneNames() {
		if lane == transport.LaneCUDA {
			continue
		}
		t.Run(lane, func(t *testing.T) {
			(&world{grouptest.OnLane(t, 3, lane)}).requireAsReplicated(lane, k, want)
		})
	}
}

// hybrid makes the groups of two copies, and has all ranks do something with them.
func (w *world) hybrid(do func(gs *mesh.Groups, r int) error) []error {
	return w.Attempt(func(r int) error {
		gs, err := mesh.Mesh{Data: 4, Shard: 2}.Open(w.T.Context(), w.Gs[r])
		if err != nil {
			return err
		}
		return errors.Join(do(gs, r), gs.Close())
	})
}

func TestCopiesOfShardsStayTheSameAndTrainAsReplicasDo(t *testing.T) {
	for _, stage := range []shard.Stage{shard.Zero3, shard.Zero1} {
		t.Run(fmt.Sprint("stage ", stage), func(t *testing.T) {
			w := newWorld(t, 4)
			rows := parallel.Rows{Seed: 1, N: rowsOfData, Batch: 14}
			k := run{
				widths: models["several layers"], rule: optim.SGD{LR: 0.1}, steps: 10,
				rowsAt: func(step uint64, rank int) []int { return rows.Of(step, rank, 4) },
			}
			want, got := w.replicated(k), make([]trained, 4)
			for r, err := range w.hybrid(func(gs *mesh.Groups, r int) (err error) {
				mine := k
				mine.rowsAt = func(step uint64, _ int) []int { return rows.Of(step, r, 4) }
				mine.config = func(int) shard.Config {
					return shard.Config{Stage: stage, Across: gs.Across}
				}
				got[r], err = mine.spread(t.Context(), gs.Shard)
				return err
			}) {
				require.NoError(t, err, "rank %d", r)
			}
			for r := range got {
				require.InDeltaSlice(t, want[r].losses, got[r].losses, 1e-5)
				require.Equal(t, got[0].params, got[r].params, "rank %d", r)
			}
		})
	}
}

func TestARankOfAnotherCopyThatFailsIsNamed(t *testing.T) {
	w := newWorld(t, 4)
	bad := errors.New("it does not like it")
	for r, err := range w.hybrid(func(gs *mesh.Groups, r int) error {
		m := &small{layers: vectors(5, 7, 3)}
		var err error
		if m.s, err = shard.New(
			t.Context(), gs.Shard, m.layers, shard.Config{Across: gs.Across},
		); err != nil {
			return err
		}
		if err := m.well(t.Context()); err != nil {
			return err
		}
		change := same
		if r == 3 {
			change = func(int, *autodiff.Tensor) *autodiff.Tensor { return autodiff.Failed(bad) }
		}
		_, failed := m.s.Backward(t.Context(), m.forward(t.Context(), change), 4)
		if err := m.well(t.Context()); err != nil {
			return err
		}
		return failed
	}) {
		var f *parallel.FailureError
		require.ErrorAs(t, err, &f, "rank %d", r)
		require.Equal(t, w.Ws[3].Name(), f.Worker)
		require.Equal(t, 1, f.Rank, "in its group")
		require.Equal(t, r == 3, errors.Is(err, bad))
	}
	for r, err := range w.hybrid(func(gs *mesh.Groups, r int) error {
		_, err := shard.New(
			t.Context(), gs.Shard, vectors(5, 7+gs.Place.Data/2), shard.Config{Across: gs.Across},
		)
		return err
	}) {
		require.ErrorIs(t, err, parallel.ErrParameters, "rank %d", r)
		require.ErrorContains(t, err, "float32(8)")
	}
}

// gathered counts the gatherings of a layer that have begun in a forward or a backward.
func gathered(g *collective.Group, layer int, in string) (n int) {
	for _, e := range g.Trace() {
		of := strings.Contains(e.Call, fmt.Sprintf("layer %d in %s", layer, in))
		if of && strings.HasPrefix(e.Call, "AllGather") {
			n++
		}
	}
	return n
}

// begins waits until a layer is being gathered.
func begins(c context.Context, g *collective.Group, layer int, in string) error {
	for gathered(g, layer, in) == 0 {
		if c.Err() != nil {
			return fmt.Errorf("layer %d is not gathered ahead in %s", layer, in)
		}
		runtime.Gosched()
	}
	return nil
}

func TestTheNextLayerIsGatheredMeanwhileAndTheLastOneOnce(t *testing.T) {
	w := newWorld(t, 2)
	w.Each(func(r int) error {
		c, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		g, layers := w.Gs[r], vectors(4, 4, 4, 4)
		s, err := shard.New(c, g, layers, shard.Config{})
		if err != nil {
			return err
		}
		x := autodiff.Ones(device.Float32, 4)
		for k := range layers {
			x = s.Layer(c, k, func() *autodiff.Tensor {
				if err := ahead(c, g, k+1, k+2, "forward 1"); err != nil {
					return autodiff.Failed(err)
				}
				return autodiff.Mul(x, layers[k][0])
			})
			if _, err := x.OnGrad(func(*autodiff.Tensor) *autodiff.Tensor { // before layer k is read
				if err := ahead(c, g, k, k-1, "backward 1"); err != nil {
					return autodiff.Failed(err)
				}
				return nil
			}); err != nil {
				return err
			}
		}
		_, err = s.Backward(c, autodiff.Sum(x), 1)
		return err
	})
}

// ahead waits until a layer is being gathered, unless it is the last one in a backward, which stays
// whole. Another one must not be.
func ahead(c context.Context, g *collective.Group, layer, not int, in string) error {
	if last := 3; layer < last || layer == last && strings.HasPrefix(in, "forward") {
		if err := begins(c, g, layer, in); err != nil {
			return err
		}
	} else if layer == last && gathered(g, layer, in) > 0 {
		return errors.New("the last layer was let go")
	}
	if gathered(g, not, in) > 0 {
		return fmt.Errorf("two layers are gathered ahead in %s", in)
	}
	return nil
}

func TestLayersMayBeCheckpoints(t *testing.T) {
	w := newWorld(t, 2)
	all := w.small()
	for what, layer := range map[string]func(m *small, k int, x *autodiff.Tensor) *autodiff.Tensor{
		"inside": func(m *small, k int, x *autodiff.Tensor) *autodiff.Tensor {
			return m.s.Layer(t.Context(), k, func() *autodiff.Tensor {
				return autodiff.Checkpoint(func(in ...*autodiff.Tensor) []*autodiff.Tensor { return []*autodiff.Tensor{sum(in[0], m.layers[k][0])} }, x)[0]
			})
		},
		"outside": func(m *small, k int, x *autodiff.Tensor) *autodiff.Tensor {
			return autodiff.Checkpoint(func(in ...*autodiff.Tensor) []*autodiff.Tensor {
				return []*autodiff.Tensor{m.s.Layer(
					t.Context(), k, func() *autodiff.Tensor { return sum(in[0], m.layers[k][0]) },
				)}
			}, x)[0]
		},
	} {
		for r, err := range w.Attempt(func(r int) error {
			x := autodiff.Scalar[float32](0)
			for k := range all[r].layers {
				x = layer(all[r], k, x)
			}
			return all[r].wellFrom(t.Context(), x)
		}) {
			require.NoError(t, err, "%s, rank %d", what, r)
		}
	}
}

func TestAnOptimizerMayStepBetweenAnyTwoForwards(t *testing.T) {
	for _, stage := range []shard.Stage{shard.Zero3, shard.Zero1} {
		t.Run(fmt.Sprint("stage ", stage), func(t *testing.T) {
			w := newWorld(t, 2)
			w.Each(func(r int) error { return stepsBetween(t.Context(), w.Gs[r], stage) })
		})
	}
}

// stepsBetween steps after a forward that comes after the backward.
func stepsBetween(c context.Context, g *collective.Group, stage shard.Stage) error {
	m := &small{layers: vectors(30, 40)}
	var err error
	if m.s, err = shard.New(c, g, m.layers, shard.Config{Stage: stage}); err != nil {
		return err
	}
	opt, err := optim.NewGroups(m.s.Named(optim.SGD{LR: 1}))
	if err != nil {
		return err
	}
	grads, err := m.s.Backward(c, m.forward(c, same), 1)
	if err != nil {
		return err
	}
	for _, want := range []float64{70, 70 * 9} { // each element is 1, and 1 − 2·2 = −3
		for range 2 {
			if v, err := m.forward(c, same).Item(); err != nil || v != want {
				return fmt.Errorf("the sum of squares is %g: %w", v, err)
			}
		}
		if err := opt.StepScaled(grads, 2); err != nil {
			return err
		}
	}
	return m.s.Finish(c)
}

func TestWeightsAtBothEndsOfAModelAreGatheredOnceWhereTheyAreKept(t *testing.T) {
	for _, keep := range [][]int{nil, {0}} {
		t.Run(fmt.Sprint("keep ", keep), func(t *testing.T) {
			w := newWorld(t, 3)
			w.Each(func(r int) error {
				c, m := t.Context(), &small{layers: vectors(50, 70, 30, 20)}
				var err error
				if m.s, err = shard.New(
					c, w.Gs[r], m.layers, shard.Config{Keep: keep},
				); err != nil {
					return err
				}
				for step := range 2 {
					rows := 1
					if r == 2 && step == 1 { // skips what the others do
						rows = 0
						err = m.s.Skip(c)
					}
					var x *autodiff.Tensor
					if rows > 0 {
						x = m.tied(c)
					}
					var grads shard.Gradients
					if err == nil {
						grads, err = m.s.Backward(c, x, rows)
					}
					if err == nil {
						err = m.requireTied(grads)
					}
					if err != nil {
						return fmt.Errorf("step %d: %w", step, err)
					}
				}
				if n := gathered(w.Gs[r], 0, "backward"); n > 0 != (keep == nil) {
					return fmt.Errorf("backwards gather layer 0 %d times", n)
				}
				return nil
			})
		})
	}
}

// tied is a forward that reads layer 0 at both ends.
func (m *small) tied(c context.Context) (x *autodiff.Tensor) {
	return m.s.Layer(c, 0, func() *autodiff.Tensor {
		x := sum(autodiff.Scalar[float32](0), m.layers[0][0])
		for k := 1; k < len(m.layers); k++ {
			x = m.s.Layer(c, k, func() *autodiff.Tensor { return sum(x, m.layers[k][0]) })
		}
		return sum(x, m.layers[0][0])
	})
}

// requireTied fails where gradients are not 4 for layer 0, and 2 for the others.
func (m *small) requireTied(grads shard.Gradients) error {
	for k, p := range m.s.Params() {
		v, err := autodiff.Values[float32](grads[p])
		for _, g := range v {
			if want := []float32{4, 2}[min(k, 1)]; g != want {
				return fmt.Errorf("the gradient of layer %d is %g: %w", k, g, err)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func TestSeveralForwardsMayComeBeforeTheirBackwards(t *testing.T) {
	w := newWorld(t, 3)
	all := w.small()
	w.Each(func(r int) error {
		m := all[r]
		first, second := m.forward(t.Context(), same), m.forward(t.Context(), same)
		if err := m.wellFrom(t.Context(), second); err != nil {
			return err
		}
		return m.wellFrom(t.Context(), first)
	})
	w.requireWell(all)
}

// sum is a loss that reads a parameter in its backward.
func sum(before, p *autodiff.Tensor) *autodiff.Tensor {
	return autodiff.Add(before, autodiff.Sum(autodiff.Mul(p, p)))
}
