package resilient_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/parallel/resilient"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport/simnet"
)

func TestAConfigThatCannotBeIsToldWhole(t *testing.T) {
	w := newCrowd(t, 1)
	g, err := w.group(t.Context(), 0, 1)
	require.NoError(t, err)
	defer g.Close()
	_, err = resilient.New(t.Context(), g, resilient.Config{Min: 3, Max: 2, Bucket: -1, Save: func() ([]byte, error) { return nil, nil }})
	require.ErrorIs(t, err, resilient.ErrConfig)
	for _, part := range []string{"Params", "Optimizer", "Min 3, Max 2", "Bucket -1", "Save"} {
		require.ErrorContains(t, err, part)
	}
}

func TestAConfigThatCannotBeOnOneMemberIsToldToAll(t *testing.T) {
	for wrong := range 3 {
		t.Run(fmt.Sprint(wrong), func(t *testing.T) {
			w := newCrowd(t, 3)
			for rank, err := range rpctest.Attempt(3, func(rank int) error {
				cfg := newLearner(1).config()
				if rank == wrong {
					cfg.Bucket = -1
				}
				_, err := w.found(within(t), rank, 3, cfg)
				return err
			}) {
				if rank == wrong {
					require.ErrorIs(t, err, resilient.ErrConfig)
					continue
				}
				var differ *resilient.DifferenceError
				require.ErrorAs(t, err, &differ, "rank %d", rank)
				require.Contains(t, []string{differ.Worker, differ.Other}, w.ws[wrong].Name())
				require.Contains(t, differ.Here+differ.There, "Bucket -1")
			}
		})
	}
}

func TestMembersThatDifferAreNamedOnAll(t *testing.T) {
	change := map[string]func(l *learner){
		"parameter 0.B: ": func(l *learner) { *l = newWiderLearner() },
		"optimizer's group 0": func(l *learner) {
			opt, err := optim.NewGroups(optim.Named(optim.Adam{LR: 0.1}, nn.Parameters(l.model)))
			require.NoError(t, err)
			l.opt = opt
		},
	}
	for what, do := range change {
		t.Run(what, func(t *testing.T) {
			w := newCrowd(t, 3)
			for rank, err := range rpctest.Attempt(3, func(rank int) error {
				l := newLearner(1)
				if rank == 1 {
					do(&l)
				}
				_, err := w.found(within(t), rank, 3, l.config())
				return err
			}) {
				var differ *resilient.DifferenceError
				require.ErrorAs(t, err, &differ, "rank %d", rank)
				require.ErrorIs(t, err, resilient.ErrDifferent)
				require.Equal(t, []string{w.ws[1].Name(), w.ws[0].Name()}, []string{differ.Worker, differ.Other})
				require.Contains(t, differ.Here, what)
				require.Contains(t, differ.There, what)
				require.NotEqual(t, differ.Here, differ.There)
			}
		})
	}
}

func TestAGroupThatIsClosedMakesNoTeam(t *testing.T) {
	w := newCrowd(t, 1)
	g, err := w.group(t.Context(), 0, 1)
	require.NoError(t, err)
	require.NoError(t, g.Close())
	_, err = resilient.New(t.Context(), g, newLearner(1).config())
	require.ErrorIs(t, err, resilient.ErrClosed)
}

func TestAStepThatIsNotTheOneToComeIsRefused(t *testing.T) {
	w := newCrowd(t, 1)
	l := newLearner(1)
	team, err := w.found(t.Context(), 0, 1, l.config())
	require.NoError(t, err)
	for step := range uint64(3) {
		_, err = team.Step(t.Context(), step, rows, l.loss)
		require.NoError(t, err)
	}
	for _, step := range []uint64{2, 4} {
		_, err = team.Step(t.Context(), step, rows, l.loss)
		var wrong *resilient.StepError
		require.ErrorAs(t, err, &wrong)
		require.Equal(t, resilient.StepError{Step: step, Expected: 3}, *wrong)
		require.ErrorIs(t, err, resilient.ErrStep)
	}
	_, err = team.Step(t.Context(), 3, parallel.Rows{N: 3}, l.loss)
	require.ErrorIs(t, err, parallel.ErrRows)
	_, err = team.Step(t.Context(), 3, rows, nil)
	require.ErrorIs(t, err, resilient.ErrConfig)
	_, err = team.Step(t.Context(), 3, rows, l.loss)
	require.NoError(t, err)
	require.NoError(t, team.Close(t.Context()))
	_, err = team.Step(t.Context(), 4, rows, l.loss)
	require.ErrorIs(t, err, resilient.ErrClosed)
}

func TestMembersThatTakeOtherRowsAreTold(t *testing.T) {
	for _, c := range []struct{ seed, batch, cover int }{{1, 0, rows.Batch}, {0, 2, rows.Batch + 1}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			w := newCrowd(t, 2)
			batch := func(rank int) int { return rows.Batch + rank*c.batch }
			for rank, err := range rpctest.Attempt(2, func(rank int) error {
				return w.takeOther(within(t), rank, uint64(rank*c.seed), batch(rank))
			}) {
				require.ErrorIs(t, err, resilient.ErrDifferent, "rank %d", rank)
				require.ErrorContains(t, err, fmt.Sprintf("in step 0 %s takes a batch of %d rows, and the sums of all members cover %d,", w.ws[rank].Name(), batch(rank), c.cover))
				require.Equal(t, c.batch != 0, strings.Contains(err.Error(), "closing"), "they differ in more than this step's rows: %v", err)
			}
		})
	}
}

// takeOther makes a step of a team of two on other rows.
func (w *crowd) takeOther(c context.Context, rank int, seed uint64, batch int) error {
	l := newLearner(1)
	team, err := w.found(c, rank, 2, l.config())
	if err != nil {
		return err
	}
	other := rows
	other.Seed, other.Batch = other.Seed+seed, batch
	_, err = team.Step(c, 0, other, l.loss)
	if e := team.Close(c); e != nil {
		return errors.Join(err, fmt.Errorf("closing: %w", e))
	}
	return err
}

func TestAStepWhoseContextEndsMayBeCalledAgain(t *testing.T) {
	const size, steps = 3, 10
	w := newCrowd(t, size)
	c := within(t)
	requireUndisturbed(t, alone(t, steps), w.train(func(rank int) run {
		l := newLearner(1)
		team, err := w.found(c, rank, size, l.config())
		if err != nil {
			return run{err: err}
		}
		return train(c, team, l, steps, func(step uint64) error {
			if step != 4 || rank != 1 {
				return nil
			}
			over, cancel := context.WithCancel(c)
			cancel()
			if _, err := team.Step(over, step, rows, l.loss); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "gradients of ") {
				return fmt.Errorf("the step ended with %w", err)
			}
			return nil
		})
	})...)
}

// TestTwoHalvesThatCannotReachEachOtherDoNotBothGoOn cuts the network between two parts of a team.
func TestTwoHalvesThatCannotReachEachOtherDoNotBothGoOn(t *testing.T) {
	const size, part, steps = 5, 3, 40
	net := simnet.New(simnet.Config{Detect: 50 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	w := &crowd{t, net, rpctest.World(t, net, size)}
	c := within(t)
	runs := w.train(func(rank int) run {
		l := newLearner(1)
		team, err := w.found(c, rank, size, l.config())
		if err != nil {
			return run{err: err}
		}
		return train(c, team, l, steps, func(step uint64) error {
			if step == 9 && rank == 0 {
				for a := range part {
					for b := part; b < size; b++ {
						w.net.Cut(rpctest.Host(a), rpctest.Host(b))
					}
				}
			}
			return nil
		})
	})
	requireUndisturbed(t, alone(t, steps), runs[:part]...)
	for _, r := range runs[part:] {
		require.ErrorIs(t, r.err, collective.ErrExcluded)
	}
}

// deaf is the job's store, which does not answer some questions.
type deaf struct {
	store.Store
	asked, silent atomic.Int64 // how often generations were proposed, and how many times more that fails
}

func (d *deaf) CompareSet(c context.Context, key string, expected, desired []byte) ([]byte, error) {
	if strings.Contains(key, "collective/") {
		d.asked.Add(1)
		if d.silent.Add(-1) >= 0 {
			return nil, store.ErrClosed
		}
	}
	return d.Store.CompareSet(c, key, expected, desired)
}

func TestWhereTheStoreIsSilentWhenSomebodyClosesTheTeamTheOthersAskAgain(t *testing.T) {
	const size, steps, until = 3, 30, 13
	stores := make([]*deaf, size)
	net := rpctest.Net()
	w := &crowd{t, net, rpctest.WorldWith(t, net, size, func(i int, cfg *rpc.Config) {
		stores[i] = &deaf{Store: cfg.Store}
		stores[i].silent.Store(2)
		cfg.Store = stores[i]
	})}
	c := within(t)
	runs := w.train(func(rank int) run {
		l := newLearner(1)
		team, err := w.found(c, rank, size, l.config())
		if err != nil {
			return run{err: err}
		}
		end := steps
		if rank == 1 {
			end = until
		}
		return train(c, team, l, end, nil)
	})
	require.NoError(t, runs[1].err)
	requireUndisturbed(t, alone(t, steps), runs[0], runs[2])
	require.Greater(t, stores[0].asked.Load()+stores[2].asked.Load(), int64(2))
}
