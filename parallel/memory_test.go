package parallel_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/parallel"
)

const (
	many   = 12
	floats = 16 << 10 // of each parameter
)

func TestAStepHoldsOneGradientOfEachParameterAndOneBucketMore(t *testing.T) {
	const each, grads = 4 * floats, 4 * floats * many
	w := newWorld(t, 2)
	c, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var held [2]int64
	base := device.Host().Stats().LiveBytes
	w.each(func(r int) error {
		ps := params(floats, floats, floats, floats, floats, floats, floats, floats, floats, floats, floats, floats)
		replicas, err := parallel.Replicate(t.Context(), w.gs[r], ps, parallel.Config{Bucket: each})
		if err != nil {
			return err
		}
		step := func() error {
			owner := autodiff.NewArena("step")
			defer owner.Free()
			one := autodiff.New([]float32{1})
			if err := owner.Adopt(one); err != nil {
				return err
			}
			_, err := replicas.Backward(t.Context(), autodiff.Mul(autodiff.Reshape(one), weighted(2, ps...)), 1)
			return err
		}
		var last *autodiff.Tensor
		for _, p := range ps {
			if _, err := p.OnAccumulated(func(leaf, _ *autodiff.Tensor) error { last = leaf; return nil }); err != nil {
				return err
			}
		}
		if err := step(); err != nil {
			return err
		}
		before := reductions(w.gs[r])
		if _, err := last.OnAccumulated(func(_, _ *autodiff.Tensor) error {
			for reductions(w.gs[r])-before < many-1 {
				if c.Err() != nil {
					return errors.New("nothing leaves before the end")
				}
				runtime.Gosched()
			}
			held[r] = device.Host().Stats().LiveBytes - base // of both ranks
			return nil
		}); err != nil {
			return err
		}
		return step()
	})
	for r := range held {
		require.GreaterOrEqual(t, held[r], int64(grads), "the gradients of a rank are there")
		require.Less(t, held[r], int64(2*(grads+2*each)+each/4), "what ranks have brought has been given back") // a quarter for scalars
	}
}

func TestAnAcceleratorNeedsRoomForOneGradientOfEachParameter(t *testing.T) {
	const bytes = 4 * floats * many
	w := newWorld(t, 2)
	w.each(func(r int) error {
		far := device.NewSim(device.SimConfig{Bytes: 2*bytes + 4*floats + 4096})
		var ps []*autodiff.Tensor
		for range many {
			ps = append(ps, autodiff.To(autodiff.New(make([]float32, floats)), far).RequireGrad())
		}
		replicas, err := parallel.Replicate(t.Context(), w.gs[r], ps, parallel.Config{Bucket: 4 * floats})
		if err != nil {
			return err
		}
		for range 3 {
			// Each loss is a parameter's own, and its gradient is made when the backward comes to it.
			owner := autodiff.NewArena("step")
			one := autodiff.To(autodiff.New([]float32{1}), far)
			err := owner.Adopt(one)
			if err == nil {
				_, err = replicas.Backward(t.Context(), summed(autodiff.Reshape(one), ps), 1)
			}
			owner.Free()
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// summed is a loss that makes no array of a parameter's size in its forward.
func summed(loss *autodiff.Tensor, ps []*autodiff.Tensor) *autodiff.Tensor {
	for _, p := range ps {
		loss = autodiff.Add(loss, autodiff.Sum(p))
	}
	return loss
}
