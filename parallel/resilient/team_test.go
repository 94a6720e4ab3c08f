package resilient_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/parallel/resilient"
)

func TestATeamMakesTheStepsOfOneProcess(t *testing.T) {
	const size, steps = 3, 20
	want := alone(t, steps)
	for _, bucket := range []int{0, 1} {
		t.Run(fmt.Sprint("buckets of ", bucket), func(t *testing.T) {
			w := newCrowd(t, size)
			c := within(t)
			requireUndisturbed(t, want, w.train(func(rank int) run {
				l := newLearner(1)
				cfg := l.config()
				cfg.Bucket = bucket
				team, err := w.found(c, rank, size, cfg)
				if err != nil {
					return run{err: err}
				}
				return train(c, team, l, steps, nil)
			})...)
		})
	}
}

// TestMembersThatAreLostAtAnyMomentLeaveNoTraceInTheLosses loses members, also several at once and
// during a recovery, until one is left.
func TestMembersThatAreLostAtAnyMomentLeaveNoTraceInTheLosses(t *testing.T) {
	const steps = 30
	want := alone(t, steps)
	var again atomic.Int64
	for seed := range uint64(soak.Cases(12)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 7))
			size := 2 + r.IntN(3)
			w := newCrowd(t, size)
			dies := map[int]uint64{} // rank, and in which step
			for _, rank := range r.Perm(size)[:1+r.IntN(size-1)] {
				dies[rank] = uint64(r.IntN(steps))
			}
			c := within(t)
			runs := w.train(func(rank int) run {
				l := newLearner(1)
				cfg := l.config()
				cfg.Bucket = int(seed % 2)
				cfg.Changed = func(change resilient.Change) { again.Add(int64(change.Again)) }
				team, err := w.found(c, rank, size, cfg)
				if err != nil {
					return run{err: err}
				}
				at, mortal := dies[rank]
				var end sync.WaitGroup
				got := train(c, team, l, steps, func(step uint64) error {
					if mortal && step == at {
						delay := time.Duration(rand.IntN(3000)) * time.Microsecond
						end.Go(func() {
							time.Sleep(delay) // a random moment within the steps to come
							_ = w.ws[rank].Close()
						})
					}
					return nil
				})
				end.Wait()
				_ = team.Close(c) // its worker may be gone
				return got
			})
			var left []run
			for rank, r := range runs {
				if _, mortal := dies[rank]; !mortal {
					left = append(left, r)
				}
			}
			requireUndisturbed(t, want, left...)
		})
	}
	require.Positive(t, again.Load(), "rows that were lost within a step")
	t.Log(again.Load(), "rows were computed again")
}

func TestALossFunctionThatFailsFailsTheStepOnAllAndItMayBeTriedAgain(t *testing.T) {
	const size, steps = 3, 6
	w := newCrowd(t, size)
	c := within(t)
	bad := errors.New("the disk is full")
	requireUndisturbed(t, alone(t, steps), w.train(func(rank int) run {
		l := newLearner(1)
		team, err := w.found(c, rank, size, l.config())
		if err != nil {
			return run{err: err}
		}
		fails := func(c context.Context, rows []int) (*autodiff.Tensor, error) { return nil, bad }
		return train(c, team, l, steps, func(step uint64) error {
			if step != 3 {
				return nil
			}
			fn := l.loss
			if rank == 1 {
				fn = fails
			}
			_, err := team.Step(c, step, rows, fn)
			var failure *parallel.FailureError
			if !errors.As(err, &failure) || failure.Worker != w.ws[1].Name() || errors.Is(err, bad) != (rank == 1) {
				return fmt.Errorf("the step ended with %w", err)
			}
			return nil
		})
	})...)
}
