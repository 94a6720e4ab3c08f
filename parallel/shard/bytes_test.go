//go:build !race

package shard_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/parallel/internal/grouptest"
	"github.com/weft-project/weft/parallel/shard"
	"github.com/weft-project/weft/transport"
)

// sent is what all workers have sent so far.
func (w *world) sent() (n uint64) {
	for _, worker := range w.Ws {
		for _, l := range worker.Lanes() {
			for _, s := range l.Lanes {
				n += s.Sent
			}
		}
	}
	return n
}

// squares are layers of one matrix each.
func squares(n, size int) (layers [][]*autodiff.Tensor) {
	for range n {
		layers = append(
			layers, []*autodiff.Tensor{autodiff.Ones(device.Float32, size, size).RequireGrad()},
		)
	}
	return layers
}

// stepsOf makes a step for each rank, and says how many bytes all ranks send in one.
func (w *world) stepsOf(
	made func(c context.Context, r int) (step func() error, err error),
) float64 {
	const warm, counted = 1, 2
	steps := make([]func() error, len(w.Gs))
	w.Each(func(r int) (err error) {
		steps[r], err = made(w.T.Context(), r)
		return err
	})
	run := func(n int) {
		for range n {
			w.Each(func(r int) error { return steps[r]() })
		}
	}
	run(warm)
	before := w.sent()
	run(counted)
	return float64(w.sent()-before) / counted
}

func TestNoMoreTravelsThanHalfMoreThanBetweenReplicas(t *testing.T) {
	const layers, size = 6, 160
	for _, ranks := range []int{2, 4} {
		t.Run(fmt.Sprint(ranks, " ranks"), func(t *testing.T) {
			w := &world{grouptest.OnLane(t, ranks, transport.LaneBulk)}
			replicated := w.stepsOf(func(c context.Context, r int) (func() error, error) {
				var params []*autodiff.Tensor
				for _, l := range squares(layers, size) {
					params = append(params, l...)
				}
				replicas, err := parallel.Replicate(c, w.Gs[r], params, parallel.Config{})
				return func() error {
					loss := autodiff.Scalar[float32](0)
					for _, p := range params {
						loss = sum(loss, p)
					}
					_, err := replicas.Backward(c, loss, 1)
					return err
				}, err
			})
			for stage, most := range map[shard.Stage]float64{shard.Zero3: 1.5, shard.Zero1: 1.05} {
				spread := w.stepsOf(func(c context.Context, r int) (func() error, error) {
					params := squares(layers, size)
					s, err := shard.New(c, w.Gs[r], params, shard.Config{Stage: stage})
					return func() error {
						loss := autodiff.Scalar[float32](0)
						for k := range params {
							loss = s.Layer(
								c, k, func() *autodiff.Tensor { return sum(loss, params[k][0]) },
							)
						}
						_, err := s.Backward(c, loss, 1)
						return err
					}, err
				})
				t.Logf(
					"stage %d: %.0f bytes a step, and %.0f between replicas: %.3f", stage, spread,
					replicated, spread/replicated,
				)
				require.LessOrEqual(t, spread, most*replicated)
				require.Greater(
					t, replicated, 1.9*float64(ranks-1)*4*layers*size*size, "it is counted",
				)
			}
		})
	}
}
