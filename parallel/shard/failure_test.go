package shard_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/parallel/shard"
)

// small is a model of three layers of a vector each, that every rank has.
type small struct {
	s      *shard.Shards
	layers [][]*autodiff.Tensor
}

func vectors(lens ...int) (layers [][]*autodiff.Tensor) {
	for _, n := range lens {
		layers = append(layers, []*autodiff.Tensor{autodiff.Ones(device.Float32, n).RequireGrad()})
	}
	return layers
}

func (w *world) small() []*small {
	w.T.Helper()
	all := make([]*small, len(w.Gs))
	w.Each(func(r int) (err error) {
		all[r] = &small{layers: vectors(5, 7, 3)}
		if all[r].s, err = shard.New(w.T.Context(), w.Gs[r], all[r].layers, shard.Config{}); err != nil {
			return err
		}
		return all[r].well(w.T.Context())
	})
	return all
}

// forward is the sum of all squares; each may be changed on its way.
func (m *small) forward(c context.Context, change func(k int, x *autodiff.Tensor) *autodiff.Tensor) *autodiff.Tensor {
	x := autodiff.Scalar[float32](0)
	for k := range m.layers {
		x = m.s.Layer(c, k, func() *autodiff.Tensor { return change(k, sum(x, m.layers[k][0])) })
	}
	return x
}

func same(_ int, x *autodiff.Tensor) *autodiff.Tensor { return x }

// well makes a step that is to go well: all gradients are 2.
func (m *small) well(c context.Context) error { return m.wellFrom(c, m.forward(c, same)) }

func (m *small) wellFrom(c context.Context, loss *autodiff.Tensor) error {
	grads, err := m.s.Backward(c, loss, 4)
	if err != nil {
		return err
	}
	for _, p := range m.s.Params() {
		v, err := autodiff.Values[float32](grads[p])
		for _, g := range v {
			if g != 2 {
				return fmt.Errorf("the gradient is %v: %w", v, err)
			}
		}
	}
	return nil
}

func (w *world) requireWell(all []*small) {
	w.T.Helper()
	w.Each(func(r int) error { return all[r].well(w.T.Context()) })
}

func TestARankThatFailsAnywhereIsNamedOnAllAndTheNextStepGoesWell(t *testing.T) {
	w := newWorld(t, 3)
	all := w.small()
	bad := errors.New("it does not like it")
	for k := range 3 {
		for what, change := range map[string]func(at int, x *autodiff.Tensor) *autodiff.Tensor{
			"the forward": func(at int, x *autodiff.Tensor) *autodiff.Tensor {
				if at == k {
					return autodiff.Failed(bad)
				}
				return x
			},
			"the backward": func(at int, x *autodiff.Tensor) *autodiff.Tensor {
				if at == k {
					_, _ = x.OnGrad(func(*autodiff.Tensor) *autodiff.Tensor { return autodiff.Failed(bad) })
				}
				return x
			},
		} {
			for r, err := range w.Attempt(func(r int) error {
				on := same
				if r == 1 {
					on = change
				}
				_, err := all[r].s.Backward(t.Context(), all[r].forward(t.Context(), on), 4)
				return err
			}) {
				var f *parallel.FailureError
				require.ErrorAs(t, err, &f, "rank %d, %s of layer %d", r, what, k)
				require.Equal(t, 1, f.Rank)
				require.Equal(t, w.Ws[1].Name(), f.Worker)
				require.ErrorContains(t, err, bad.Error())
				require.Equal(t, r == 1, errors.Is(err, bad))
			}
			w.requireWell(all)
		}
	}
}

func TestAGradientThatIsNotFiniteIsNamedOnAllRanks(t *testing.T) {
	w := newWorld(t, 3)
	all := make([]*small, 3)
	w.Each(func(r int) (err error) {
		all[r] = &small{layers: vectors(5, 7, 3)}
		all[r].s, err = shard.New(t.Context(), w.Gs[r], all[r].layers, shard.Config{Check: true})
		return err
	})
	for layer := range 3 {
		for r, err := range w.Attempt(func(r int) error {
			_, err := all[r].s.Backward(t.Context(), all[r].forward(t.Context(), func(k int, x *autodiff.Tensor) *autodiff.Tensor {
				if k == layer && r > 0 {
					p := all[r].layers[k][0]
					return autodiff.Add(x, autodiff.Sum(autodiff.Scale(p, math.Inf(r)))) // ranks 1 and 2 have one
				}
				return x
			}), 4)
			return err
		}) {
			var e *parallel.NotFiniteError
			require.ErrorAs(t, err, &e, "rank %d", r)
			require.ErrorIs(t, err, parallel.ErrNotFinite)
			require.Equal(t, parallel.NotFiniteError{Rank: 1, Worker: w.Ws[1].Name(), Parameter: fmt.Sprint(layer)}, *e)
		}
		w.requireWell(all)
	}
}

func TestNumbersOfRowsThatCannotBeAreErrorsOnAllRanks(t *testing.T) {
	w := newWorld(t, 2)
	all := w.small()
	for _, rows := range []int{-1, 1<<23 + 1} {
		for r, err := range w.Attempt(func(r int) error {
			_, err := all[r].s.Backward(t.Context(), all[r].forward(t.Context(), same), []int{3, rows}[r])
			return err
		}) {
			require.ErrorIs(t, err, parallel.ErrFailed, "rank %d", r)
			require.Equal(t, r == 1, errors.Is(err, parallel.ErrRows))
		}
	}
	for _, err := range w.Attempt(func(r int) error {
		if err := all[r].s.Skip(t.Context()); err != nil {
			return err
		}
		_, err := all[r].s.Backward(t.Context(), nil, 0)
		return err
	}) {
		require.ErrorIs(t, err, parallel.ErrRows)
	}
	for r, err := range w.Attempt(func(r int) error {
		y := all[r].s.Layer(t.Context(), 0, func() *autodiff.Tensor { return autodiff.Tanh(all[r].layers[0][0]) })
		_, err := all[r].s.Backward(t.Context(), y, 1)
		return err
	}) {
		require.ErrorIs(t, err, autodiff.ErrNotScalar, "rank %d", r)
	}
	w.requireWell(all)
}

func TestACancelledContextFailsTheStepOnAllRanksAndTheNextOneGoesWell(t *testing.T) {
	w := newWorld(t, 3)
	all := w.small()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, at := range []string{"a layer", "the backward"} {
		for r, err := range w.Attempt(func(r int) error {
			forward, backward := t.Context(), t.Context()
			if r == 1 && at == "a layer" {
				forward = over
			} else if r == 1 {
				backward = over
			}
			_, err := all[r].s.Backward(backward, all[r].forward(forward, same), 4)
			return err
		}) {
			require.Error(t, err, "rank %d, %s", r, at)
		}
		w.requireWell(all)
	}
}

func TestALostWorkerIsNamed(t *testing.T) {
	for _, at := range []string{"forward", "backward"} {
		t.Run(at, func(t *testing.T) {
			w := newWorld(t, 3)
			all := w.small()
			gone := w.Ws[2].Name()
			for r, err := range w.Attempt(func(r int) error {
				if r == 2 && at == "forward" {
					return w.Ws[2].Close()
				}
				loss := all[r].forward(t.Context(), same)
				if r == 2 {
					err := w.Ws[2].Close()
					_ = all[2].s.Finish(t.Context()) // lets go of the last layer
					return err
				}
				_, err := all[r].s.Backward(t.Context(), loss, 4)
				return err
			}) {
				if r == 2 {
					require.NoError(t, err)
					continue
				}
				var lost *collective.LostError
				require.ErrorAs(t, err, &lost, "rank %d", r)
				require.Equal(t, gone, lost.Worker)
			}
		})
	}
}

func TestParametersHaveValuesOnlyInsideTheirLayers(t *testing.T) {
	w := newWorld(t, 2)
	all := w.small()
	w.Each(func(r int) error {
		m, c := all[r], t.Context()
		outside := func() error { return autodiff.Tanh(m.layers[1][0]).Err() }
		if err := outside(); !errors.Is(err, shard.ErrAway) {
			return fmt.Errorf("before: %w", err)
		}
		for k := range 3 {
			if err := m.s.With(c, k, func() error {
				if err := autodiff.Tanh(m.layers[k][0]).Err(); err != nil {
					return err
				}
				if err := autodiff.Tanh(m.layers[(k+1)%3][0]).Err(); !errors.Is(err, shard.ErrAway) {
					return fmt.Errorf("of another layer: %w", err)
				}
				return nil
			}); err != nil {
				return err
			}
		}
		if err := outside(); !errors.Is(err, shard.ErrAway) {
			return fmt.Errorf("after: %w", err)
		}
		if err := m.s.Layer(c, 0, nil).Err(); !errors.Is(err, autodiff.ErrFunction) {
			return fmt.Errorf("no function: %w", err)
		}
		for _, k := range []int{-1, 3} {
			if err := m.s.Layer(c, k, nil).Err(); !errors.Is(err, shard.ErrLayer) {
				return fmt.Errorf("layer %d: %w", k, err)
			}
		}
		x := m.forward(c, same)
		if _, err := autodiff.Backward(x); !errors.Is(err, shard.ErrAway) { // of layer 2, which it reads first
			return fmt.Errorf("a backward of nobody's: %w", err)
		}
		return m.s.Finish(c)
	})
	w.requireWell(all)
}

func TestARankThatDoesNotSkipAPassIsToldAtOnce(t *testing.T) {
	w := newWorld(t, 2)
	all := w.small()
	c, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	began := time.Now()
	for r, err := range w.Attempt(func(r int) error {
		if r == 1 {
			_, err := all[1].s.Backward(c, nil, 0)
			return err
		}
		_, err := all[0].s.Backward(c, all[0].forward(c, same), 2)
		return err
	}) {
		require.ErrorIs(t, err, collective.ErrMismatch, "rank %d", r)
	}
	require.Less(t, time.Since(began), 50*time.Second, "nobody waits for the deadline")
}

func TestGradientsComeOnceInABackward(t *testing.T) {
	w := newWorld(t, 2)
	all := w.small()
	for r, err := range w.Attempt(func(r int) error {
		x := all[r].forward(t.Context(), same)
		_, err := all[r].s.BackwardBy(t.Context(), 4, func(float64) error {
			for range 2 {
				if _, err := autodiff.BackwardWith(autodiff.Options{RetainGraph: true}, x); err != nil {
					return err
				}
			}
			return nil
		})
		return err
	}) {
		require.ErrorIs(t, err, shard.ErrOutside, "rank %d", r)
	}
	w.requireWell(all)
}
