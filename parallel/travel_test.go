package parallel_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/parallel"
)

// reductions counts those that have ended.
func reductions(g *collective.Group) (n int) {
	for _, e := range g.Trace() {
		if strings.HasPrefix(e.Call, "AllReduce") && e.State == "done" {
			n++
		}
	}
	return n
}

func TestRowsNeedNoMessageAndAnUnusedParameterHasNone(t *testing.T) {
	for limit, of := range map[int]struct{ both, first, alone, again int }{
		0: {both: 1, first: 1, alone: 1, again: 2}, // in the bucket that tells of the step
		1: {both: 3, first: 3, alone: 2, again: 3}, // each alone, and what tells of the step
	} {
		t.Run(fmt.Sprint("buckets of ", limit), func(t *testing.T) {
			w := newWorld(t, 3)
			all, ps := w.ready(parallel.Config{Bucket: limit})
			for at, k := range []struct{ used, want int }{
				{2, of.both}, {2, of.both}, {2, of.both}, {1, of.first}, {1, of.alone}, {1, of.alone}, {2, of.again}, {2, of.both},
			} {
				before := reductions(w.gs[0])
				w.each(func(r int) error {
					_, err := all[r].Backward(t.Context(), weighted(1, ps[r][:k.used]...), (r+at)%3) // other rows at each step
					return err
				})
				require.Equal(t, k.want, reductions(w.gs[0])-before, "step %d", at)
			}
		})
	}
}

func TestBucketsLeaveWhileTheBackwardGoesOn(t *testing.T) {
	w := newWorld(t, 2)
	w.each(func(r int) error {
		model := newModel(1)
		ps := model.Params()
		replicas, err := parallel.Replicate(t.Context(), w.gs[r], ps, parallel.Config{Bucket: 1})
		if err != nil {
			return err
		}
		var last *autodiff.Tensor
		for _, p := range ps {
			remove, err := p.OnAccumulated(func(leaf, _ *autodiff.Tensor) error { last = leaf; return nil })
			if err != nil {
				return err
			}
			defer remove()
		}
		backward := func() error {
			owner := autodiff.NewArena("step")
			defer owner.Free()
			loss, err := lossOf(model, owner, []int{1, 2, 3})
			if err == nil {
				_, err = replicas.Backward(t.Context(), loss, 3)
			}
			return err
		}
		if err := backward(); err != nil {
			return err
		}
		before := reductions(w.gs[r])
		c, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		remove, err := last.OnAccumulated(func(_, _ *autodiff.Tensor) error {
			for reductions(w.gs[r])-before < len(ps)-1 { // all that have come have been summed
				if c.Err() != nil {
					return errors.New("nothing leaves before the end")
				}
				runtime.Gosched()
			}
			return nil
		})
		if err != nil {
			return err
		}
		defer remove()
		return backward()
	})
}

func TestGradientsAreWhereTheParametersAre(t *testing.T) {
	for _, limit := range buckets {
		t.Run(fmt.Sprint("buckets of ", limit), func(t *testing.T) {
			w := newWorld(t, 3)
			w.each(func(r int) error {
				ps := []*autodiff.Tensor{autodiff.New([]float32{float32(r), 1}), autodiff.New([]float32{float32(2 * r)})}
				if r > 0 {
					far := device.NewSim(device.SimConfig{})
					ps = []*autodiff.Tensor{autodiff.To(ps[0], far), autodiff.To(ps[1], far)}
				}
				for i := range ps {
					ps[i] = ps[i].RequireGrad()
				}
				replicas, err := parallel.Replicate(t.Context(), w.gs[r], ps, parallel.Config{Bucket: limit, Check: true})
				if err != nil {
					return err
				}
				for _, p := range ps {
					if v, err := autodiff.Values[float32](p); err != nil || v[0] != 0 {
						return fmt.Errorf("the value is %v: %w", v, err)
					}
				}
				for range 3 {
					if err := wellDone(t.Context(), replicas, ps); err != nil {
						return err
					}
				}
				grads, err := replicas.Backward(t.Context(), weighted(1, ps...), 2)
				for p, grad := range grads {
					if grad.Device() != p.Device() {
						err = fmt.Errorf("a gradient is on %v", grad.Device())
					}
				}
				return err
			})
		})
	}
}

func TestWhatRankZeroHasLeavesFirst(t *testing.T) {
	w := newWorld(t, 2)
	w.each(func(r int) error {
		ps := params(200, 300)
		replicas, err := parallel.Replicate(t.Context(), w.gs[r], ps, parallel.Config{Bucket: 1})
		for range 2 {
			if err == nil {
				_, err = replicas.Backward(t.Context(), weighted(1, ps[r]), 1)
			}
		}
		return err
	})
	var left []int
	for _, e := range w.gs[0].Trace() {
		if strings.HasPrefix(e.Call, "AllReduce") && e.Bytes >= 800 {
			left = append(left, e.Bytes)
		}
	}
	require.Equal(t, []int{800, 1200, 800, 1200}, left)
}

func TestBucketsAreUnderWayTogetherUpToTheLargestOrTwo(t *testing.T) {
	for _, k := range []struct {
		lens    []int // of parameters, in elements; the last one's gradient comes first
		pending int
	}{
		{[]int{1024, 1024, 1024, 1024, 1024}, 2},
		{[]int{8192, 1024, 1024, 1024, 1024, 1024, 1024}, 4},
		{[]int{1024, 1024, 8192}, 1},
		{[]int{8192, 6144, 1024, 1024, 1024}, 3}, // the second one has no room beside the others
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 2)
			come, pending := make(chan struct{}), 0
			var hold atomic.Bool
			w.each(func(r int) error {
				ps := params(k.lens...)
				replicas, err := parallel.Replicate(t.Context(), w.gs[r], ps, parallel.Config{Bucket: 4096})
				if err != nil {
					return err
				}
				if _, err := ps[len(ps)-1].OnAccumulated(func(_, _ *autodiff.Tensor) error {
					if r == 1 && hold.Load() {
						<-come
					}
					return nil
				}); err != nil {
					return err
				}
				for range 2 {
					if _, err := replicas.Backward(t.Context(), weighted(1, ps...), 1); err != nil {
						return err
					}
				}
				if err := w.gs[r].Barrier(t.Context()); err != nil {
					return err
				}
				if r == 0 { // rank 1 begins when all that rank 0 can begin is under way
					hold.Store(true)
					time.AfterFunc(time.Second, func() {
						for _, e := range w.gs[0].Trace() {
							if strings.HasPrefix(e.Call, "AllReduce") && e.State != "done" {
								pending++
							}
						}
						close(come)
					})
				} else {
					time.Sleep(time.Millisecond)
				}
				_, err = replicas.Backward(t.Context(), weighted(1, ps...), 1)
				return err
			})
			require.Equal(t, k.pending, pending, "%v", k.lens)
			w.each(func(r int) error { return w.gs[r].Barrier(t.Context()) })
		})
	}
}
