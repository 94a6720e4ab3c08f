package outer

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/rpc"
)

func TestAllThatIsWrongWithAConfigurationIsSaidAtOnceAndToAll(t *testing.T) {
	bad := Config{Every: -1, Fragments: 9, Delay: -1, Mix: 1, Wire: 9, LR: -1, Momentum: math.NaN()}
	gs := openAll(t, 2)
	errs := rpctest.Attempt(2, func(r int) error {
		cfg := Config{}
		if r == 1 {
			cfg = bad
		}
		_, err := New(t.Context(), gs[r], newParams(0), cfg)
		return err
	})
	require.ErrorIs(t, errs[1], ErrConfig)
	for _, what := range []string{
		"Every is -1; expected 1 or more", "Fragments is 9; expected 1 to 1", "Mix is 1; expected 0 to less than 1",
		"Wire is Wire(9); expected Float32, BFloat16, Int8 or Int4", "LR is -1; expected more than 0, to 1e6", "Momentum is NaN; expected 0 to less than 1",
	} {
		require.ErrorContains(t, errs[1], what)
	}
	var failed *parallel.FailureError
	require.ErrorAs(t, errs[0], &failed)
	require.Equal(t, 1, failed.Rank)
	require.Equal(t, "worker1", failed.Worker)
	require.Equal(t, 1, strings.Count(errs[1].Error(), "Mix is 1"), "%v", errs[1])
	for _, c := range []struct {
		cfg  Config
		what string
	}{
		{Config{Every: 50, Fragments: 6}, "Fragments is 6; expected 1 to 5, the number of parameters (5)"},
		{Config{Every: 3, Fragments: 4}, "Fragments is 4; expected 1 to 3"},
		{Config{Every: 50, Fragments: 5, Delay: 10}, "Delay is 10; expected 0 to 9, less than Every/Fragments"},
		{Config{Every: 50, Delay: -1}, "Delay is -1; expected 0 to 49"},
		{Config{Every: 10, Fragments: 3, Delay: 3}, "Delay is 3; expected 0 to 2"},
		{Config{Mix: -0.1}, "Mix is -0.1"},
	} {
		err := c.cfg.filled().violations(5)
		require.ErrorIs(t, err, ErrConfig)
		require.ErrorContains(t, err, c.what)
	}
	for _, cfg := range []Config{{}, {Every: 10, Fragments: 3, Delay: 2}, {Every: 5, Fragments: 5, Mix: 0.99, Wire: Int4}} {
		require.NoError(t, cfg.filled().violations(5))
	}
}

// openAll makes a group of so many workers.
func openAll(t *testing.T, n int) []*collective.Group {
	t.Helper()
	w := newGroupOf(t, n)
	return w.gs
}

func newGroupOf(t *testing.T, n int) *world {
	t.Helper()
	w := &world{t: t, ws: rpctest.World(t, rpctest.Net(), n), gs: make([]*collective.Group, n)}
	w.each(w.first(n), func(r int) (err error) { w.gs[r], err = collective.Open(t.Context(), w.ws[r], "outer"); return err })
	t.Cleanup(func() {
		for _, g := range w.gs {
			require.NoError(t, g.Close())
		}
	})
	return w
}

func TestParametersThatDifferAreNamedOnAllRanks(t *testing.T) {
	gs := openAll(t, 3)
	names := []string{"w", "b"}
	vectors := func(lens ...int) (all []*autodiff.Tensor) {
		for _, n := range lens {
			all = append(all, autodiff.New(make([]float32, n)).RequireGrad())
		}
		return all
	}
	for r, err := range rpctest.Attempt(3, func(r int) error {
		_, err := New(t.Context(), gs[r], vectors(4, 2+r/2), Config{Names: names})
		return err
	}) {
		var differ *parallel.DifferenceError
		require.ErrorAs(t, err, &differ, "rank %d", r)
		require.Equal(t, 2, differ.Rank)
		require.Contains(t, differ.Here, "b: ")
		require.Contains(t, differ.There, "b: ")
	}
	for _, c := range []struct {
		other       Config
		here, there string
	}{
		{Config{Every: 20}, "Every 50", "Every 20"}, {Config{Fragments: 2}, "Fragments 1", "Fragments 2"}, {Config{Delay: 3}, "Delay 0", "Delay 3"},
		{Config{Mix: 0.5}, "Mix 0", "Mix 0.5"}, {Config{Wire: Int4}, "Wire float32", "Wire int4"}, {Config{FirstCalls: true}, "FirstCalls false", "FirstCalls true"},
		{Config{LR: 1}, "LR 0.7", "LR 1"}, {Config{Momentum: optim.Zero}, "Momentum 0.9", "Momentum 0"},
	} {
		for r, err := range rpctest.Attempt(3, func(r int) error {
			cfg := Config{Every: 50, Changed: func(Change) {}, Listen: fmt.Sprint(r)} // these may differ
			if r == 2 {
				cfg = c.other
			}
			_, err := New(t.Context(), gs[r], vectors(4, 2), cfg)
			return err
		}) {
			var differ *parallel.DifferenceError
			require.ErrorAs(t, err, &differ, "rank %d", r)
			require.Equal(t, parallel.DifferenceError{Rank: 2, Here: c.here, There: c.there, Worker: "worker0", Other: "worker2"}, *differ)
		}
	}
	for r, params := range [][]*autodiff.Tensor{
		{autodiff.New([]float64{1})}, {autodiff.Failed(errors.New("no"))}, {}, append(vectors(1), autodiff.Add(vectors(1)[0], vectors(1)[0])),
	} {
		for rank, err := range rpctest.Attempt(3, func(rank int) error {
			mine := vectors(1)
			if rank == 1 {
				mine = params
			}
			_, err := New(t.Context(), gs[rank], mine, Config{})
			return err
		}) {
			require.ErrorContains(t, err, "rank 1, worker1", "case %d, rank %d", r, rank)
		}
	}
	p := vectors(1)
	for _, err := range rpctest.Attempt(3, func(r int) error {
		_, err := New(t.Context(), gs[r], []*autodiff.Tensor{p[0], p[0]}, Config{})
		return err
	}) {
		require.ErrorIs(t, err, parallel.ErrFailed)
		require.ErrorContains(t, err, "given once")
	}
	loops := make([]*Loop, 3)
	for _, err := range rpctest.Attempt(3, func(r int) (err error) { loops[r], err = New(t.Context(), gs[r], vectors(1), Config{}); return err }) {
		require.NoError(t, err, "the group lives on")
	}
	for _, l := range loops {
		require.NoError(t, l.Close())
	}
}

// spoil makes an element of a parameter NaN.
func spoil(p *autodiff.Tensor) error {
	x, err := autodiff.Values[float32](p)
	if err != nil {
		return err
	}
	x[len(x)-1] = float32(math.NaN())
	return autodiff.Assign([]*autodiff.Tensor{p}, []*autodiff.Tensor{autodiff.New(x, p.Shape()...)})
}

func TestANumberThatIsNotFiniteIsNamedOnAllRanksAndAppliedOnNone(t *testing.T) {
	for _, wire := range []Wire{Float32, Int4} {
		for _, delay := range []int{0, 2} {
			t.Run(fmt.Sprint(wire, delay), func(t *testing.T) {
				w := newWorld(t, 3, 3, Config{Every: 4, Delay: delay, Mix: 0.5, Wire: wire, Names: []string{"a", "b", "c", "d", "e"}})
				ranks := w.first(3)
				for step := 1; step < 4; step++ {
					require.Equal(t, make([]error, 3), w.step(ranks, step))
				}
				require.NoError(t, spoil(w.params[1][3]))
				before := w.loops[0].parts[0].anchor
				errs := w.step(ranks, 4)
				for k := range delay {
					require.Equal(t, make([]error, 3), errs)
					errs = w.step(ranks, 5+k)
				}
				for _, err := range errs {
					var bad *parallel.NotFiniteError
					require.ErrorAs(t, err, &bad)
					require.Equal(t, parallel.NotFiniteError{Rank: 1, Worker: "worker1", Parameter: "d"}, *bad)
					var diverged *DivergedError
					require.ErrorAs(t, err, &diverged)
					require.Equal(t, DivergedError{Rank: 1, Worker: "worker1", Step: 4, Parameter: "d"}, *diverged)
					require.ErrorContains(t, err, "parameter d of rank 1, worker1, is not finite after its inner step 4, at the exchange that followed: "+
						"look at its rows, or lower the learning rate")
					var failed *ExchangeError
					require.ErrorAs(t, err, &failed)
					require.EqualValues(t, 0, failed.Round)
				}
				require.Equal(t, before, w.loops[0].parts[0].anchor)
				w.requireSame(ranks...)
				require.NoError(t, w.loops[1].Rewind())
				require.Equal(t, make([]error, 3), w.step(ranks, 20))
				w.each(ranks, func(r int) error { return w.loops[r].Settle(t.Context()) })
				require.EqualValues(t, 1, w.loops[0].Rounds())
				require.Equal(t, []float64{5 + float64(delay), 1, 5 + float64(delay)}, w.loops[2].Last().Weights, "what was given up weighs nothing")
				w.requireSame(ranks...)
				require.NotEqual(t, before, w.loops[0].parts[0].anchor)
			})
		}
	}
}

func TestWhenAMemberIsLostNothingOfTheOthersIsLost(t *testing.T) {
	for _, delay := range []int{0, 2} {
		t.Run(fmt.Sprint("delay ", delay), func(t *testing.T) {
			cfg := Config{Every: 4, Delay: delay, FirstCalls: delay > 0}
			w := newWorld(t, 3, 3, cfg)
			left := []int{0, 1}
			for step := 1; step < 4; step++ { // nothing has been exchanged yet
				require.Equal(t, make([]error, 3), w.step(w.first(3), step))
			}
			require.NoError(t, w.loops[2].Close())
			require.NoError(t, w.ws[2].Close())
			var errs []error
			for step := 4; step <= 4+delay; step++ {
				errs = w.step(left, step)
			}
			for _, err := range errs {
				var lost *collective.LostError
				require.ErrorAs(t, err, &lost)
				require.Equal(t, "worker2", lost.Worker)
				require.ErrorContains(t, err, "exchange 1, of fragment 0, was not applied")
			}
			w.each(left, func(r int) (err error) {
				if w.gs[r], err = w.gs[r].Without(t.Context()); err != nil {
					return err
				}
				return w.loops[r].Regroup(t.Context(), w.gs[r])
			})
			require.Equal(t, make([]error, 2), w.step(left, 5+delay), "it comes at once")
			w.each(left, func(r int) error { return w.loops[r].Settle(t.Context()) })
			require.Equal(t, []float64{5 + float64(delay), 5 + float64(delay)}, w.loops[0].Last().Weights, "all steps count")
			w.requireSame(left...)
			if delay == 0 { // as if there had been two from the beginning, with an exchange at the fifth step
				o := newOracle(Config{Every: 5, Fragments: 1, LR: 0.7, Momentum: 0.9}, 2, valuesOf(t, newParams(0)), func(int, int) int { return 1 })
				for step := 1; step <= 5; step++ {
					o.step(step)
				}
				for p, x := range valuesOf(t, w.params[0]) {
					require.InDeltaSlice(t, o.anchor[p], widened(x), 1e-4)
				}
			}
		})
	}
}

func TestWhoHasMissedAResultGetsItWhenAllComeTogether(t *testing.T) {
	for _, wire := range []Wire{Float32, Int8} {
		for who := range 2 {
			cfg := Config{Every: 4, Fragments: 2, Delay: 1, Wire: wire, Mix: 0.4}
			var part fragment
			var values [][]float32
			t.Run(wire.String()+", undisturbed", func(t *testing.T) {
				w := newWorld(t, 2, 2, cfg)
				for step := 1; step <= 3; step++ {
					require.Equal(t, make([]error, 2), w.step(w.first(2), step))
				}
				part, values = *w.loops[who].parts[0], valuesOf(t, w.params[who])
			})
			t.Run(fmt.Sprint(wire, ", rank ", who), func(t *testing.T) { missesAResult(t, cfg, who, part, values) })
		}
	}
}

func missesAResult(t *testing.T, cfg Config, who int, part fragment, values [][]float32) {
	w := newWorld(t, 2, 2, cfg)
	ranks := w.first(2)
	for step := 1; step <= 2; step++ {
		require.Equal(t, make([]error, 2), w.step(ranks, step))
	}
	f := w.loops[who].flight
	<-f.done
	f.err = errors.New("the last message of it was lost")
	errs := w.step(ranks, 3)
	require.NoError(t, errs[1-who])
	require.ErrorContains(t, errs[who], "the last message of it was lost")
	require.EqualValues(t, 1, w.loops[1-who].Rounds())
	require.EqualValues(t, 0, w.loops[who].Rounds())
	w.each(ranks, func(r int) error { return w.loops[r].Regroup(t.Context(), w.gs[r]) })
	w.requireSame(ranks...)
	require.Equal(t, part.anchor, w.loops[who].parts[0].anchor)
	require.Equal(t, part.momentum, w.loops[who].parts[0].momentum)
	require.Equal(t, values, valuesOf(t, w.params[who]), "as if it had come in time")
	for step := 4; step <= 9; step++ {
		require.Equal(t, make([]error, 2), w.step(ranks, step))
	}
	w.requireSame(ranks...)
}

func TestMembersThatHaveComeApartAreToldSo(t *testing.T) {
	w := newWorld(t, 3, 3, Config{Every: 2})
	ranks := w.first(3)
	w.loops[2].parts[0].anchor[7]++ // as a faulty memory would
	require.Equal(t, make([]error, 3), w.step(ranks, 1))
	for _, err := range w.step(ranks, 2) {
		require.ErrorIs(t, err, ErrApart)
		require.ErrorContains(t, err, "rank 2, worker2, has other synchronised values")
	}
	w.each(ranks, func(r int) error { return w.loops[r].Regroup(t.Context(), w.gs[r]) })
	require.Equal(t, make([]error, 3), w.step(ranks, 3))
	w.requireSame(ranks...)

	w.loops[0].with(func(m *scheduleMachine) { p := m.Position(); p.Round++; m.Go(p) })
	require.Equal(t, make([]error, 3), w.step(ranks, 4))
	for _, err := range w.step(ranks, 5) {
		require.ErrorIs(t, err, ErrApart)
		require.ErrorContains(t, err, "rank 1, worker1, is at exchange 2 (last: false) where rank 0 is at 3 (last: false)")
	}
}

func TestWhoFinishesWhileOthersGoOnIsToldSo(t *testing.T) {
	w := newWorld(t, 2, 2, Config{Every: 1})
	for _, err := range attempt(w.first(2), func(r int) error {
		if r == 0 {
			return w.loops[r].Finish(t.Context())
		}
		return w.loops[r].Step(t.Context())
	}) {
		require.ErrorIs(t, err, ErrApart)
		require.ErrorContains(t, err, "rank 1, worker1, is at exchange 1 (last: false) where rank 0 is at 1 (last: true)")
	}
}

func TestACancelledStepFailsTheExchangeOnAllAndItComesAgain(t *testing.T) {
	w := newWorld(t, 2, 2, Config{Every: 2, Delay: 1})
	ranks := w.first(2)
	for step := 1; step < 2; step++ {
		require.Equal(t, make([]error, 2), w.step(ranks, step))
	}
	// Rank 1 does not begin, so that rank 0's exchange cannot be there.
	require.NoError(t, w.loops[0].Step(t.Context()))
	require.ErrorContains(t, w.loops[0].Step(canceled(t.Context())), "context canceled")
	require.NoError(t, w.loops[1].Step(t.Context()))
	require.Error(t, w.loops[1].Step(t.Context()))
	for step := 4; step <= 5; step++ {
		require.Equal(t, make([]error, 2), w.step(ranks, step))
	}
	require.EqualValues(t, 1, w.loops[0].Rounds())
	w.requireSame(ranks...)
}

func TestArgumentsThatCannotBeAreRefused(t *testing.T) {
	w := newWorld(t, 1, 1, Config{Every: 2, Delay: 1})
	l := w.loops[0]
	require.ErrorIs(t, l.StepRows(t.Context(), -1), parallel.ErrRows)
	require.NoError(t, l.Settle(t.Context()), "there is nothing to wait for")
	require.Equal(t, make([]error, 1), w.step([]int{0}, 1))
	require.Equal(t, make([]error, 1), w.step([]int{0}, 2))
	require.ErrorIs(t, l.Rewind(), rpc.ErrArguments)
	require.NoError(t, l.Settle(t.Context()))
	require.NoError(t, l.Rewind())
}

func TestAWorkerWhoseParametersCannotBeReadIsNamedOnAll(t *testing.T) {
	w := newWorld(t, 2, 2, Config{Every: 1})
	owner := autodiff.NewArena("gone")
	p := autodiff.New(make([]float32, 5))
	require.NoError(t, owner.Adopt(p))
	owner.Free()
	w.loops[1].params[1] = p
	for r, err := range attempt(w.first(2), func(r int) error { return w.loops[r].Step(t.Context()) }) {
		var failed *parallel.FailureError
		require.ErrorAs(t, err, &failed, "rank %d", r)
		require.Equal(t, 1, failed.Rank)
		require.Equal(t, 1, strings.Count(err.Error(), failed.Text), "%v", err)
	}
}
