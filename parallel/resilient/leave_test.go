package resilient_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/parallel/resilient"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport/simnet"
)

// member is one of a team in a test of who leaves it.
type member struct {
	*resilient.Team
	learner
	w    *rpc.Worker
	rank int
}

func (m *member) step(c context.Context, step uint64) error {
	_, err := m.Step(c, step, rows, m.loss)
	return err
}

const delay = time.Millisecond

// leaving has each member of a team do its part, and gives their errors. What one says to another
// takes up to a delay.
func leaving(t *testing.T, seed uint64, size int, most time.Duration, part func(c context.Context, m *member) error) (errs []error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		net := simnet.New(simnet.Config{Seed: seed, MinDelay: delay / 10, MaxDelay: most, Logger: slog.New(slog.DiscardHandler)})
		w := &crowd{t, net, rpctest.World(t, net, size)}
		c, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		errs = rpctest.Attempt(size, func(rank int) error {
			l := newLearner(1)
			team, err := w.found(c, rank, size, l.config())
			if err != nil {
				return err
			}
			defer cease(team) //nolint:errcheck // it may be closed
			return part(c, &member{team, l, w.ws[rank], rank})
		})
	})
	return errs
}

// cease closes a team, and does not wait for the others.
func cease(team *resilient.Team) error {
	c, cancel := context.WithCancel(context.Background())
	cancel()
	return team.Close(c)
}

// TestMembersCloseTheTeamWhileOtherWorkersLiveOrEnd has each leave after a step of its own or all
// after the same one. Some workers end with it, and others live on.
func TestMembersCloseTheTeamWhileOtherWorkersLiveOrEnd(t *testing.T) {
	for seed := range uint64(soak.Cases(300)) {
		r := rand.New(rand.NewPCG(seed, 1))
		size := 2 + r.IntN(3)
		last, ends, pauses := make([]int, size), make([]bool, size), make([][]time.Duration, size)
		for rank := range size {
			last[rank], ends[rank] = 3+r.IntN(2), r.IntN(2) == 0
			for range last[rank] {
				pauses[rank] = append(pauses[rank], time.Duration(r.Int64N(int64(5*delay))))
			}
		}
		for rank, err := range leaving(t, seed, size, 5*delay, func(c context.Context, m *member) error {
			made := train(c, m.Team, m.learner, last[m.rank], func(step uint64) error { time.Sleep(pauses[m.rank][step]); return nil })
			if ends[m.rank] {
				made.err = errors.Join(made.err, m.w.Close())
			}
			return made.err
		}) {
			if !errors.Is(err, resilient.ErrEnded) {
				require.NoError(t, err, "seed %d: member %d of %v, whose workers end: %v", seed, rank, last, ends)
			}
		}
	}
}

// TestWhoAllOthersSayGoodbyeToGoesOnAtOnce has all but the last member close the team: all that do
// after the same step, or each after one more than the one before; and also where they do not wait.
func TestWhoAllOthersSayGoodbyeToGoesOnAtOnce(t *testing.T) {
	const steps = 8
	for size := 2; size <= 5; size++ {
		for apart := range 2 {
			for _, waits := range []bool{true, false} {
				errs := leaving(t, 0, size, delay, func(c context.Context, m *member) (err error) {
					last := steps
					if m.rank < size-1 {
						last = 2 + apart*m.rank
					}
					began := time.Now()
					for step := range last {
						err = errors.Join(err, m.step(c, uint64(step)))
					}
					if took := time.Since(began); took > time.Second {
						err = errors.Join(err, fmt.Errorf("%d steps took %v", last, took))
					}
					if waits || m.rank == size-1 {
						return errors.Join(err, m.Close(c))
					}
					_ = cease(m.Team)
					return err
				})
				for rank, err := range errs {
					require.NoError(t, err, "member %d of %d, apart %d, waits: %v", rank, size, apart, waits)
				}
			}
		}
	}
}

// TestAFailureIsToldToAllAlsoWhereWhoHasFailedGoesAtOnce has a loss function fail on one member,
// which then closes the team, or does not even that. The others make the step without it.
func TestAFailureIsToldToAllAlsoWhereWhoHasFailedGoesAtOnce(t *testing.T) {
	full := errors.New("disk full")
	for seed := range uint64(soak.Cases(100)) {
		r := rand.New(rand.NewPCG(seed, 5))
		size := 2 + r.IntN(4)
		bad, how := r.IntN(size), r.IntN(3)
		for rank, err := range leaving(t, seed, size, 3*delay, func(c context.Context, m *member) error {
			if err := m.step(c, 0); err != nil {
				return err
			}
			loss := m.loss
			if m.rank == bad {
				loss = func(context.Context, []int) (*autodiff.Tensor, error) { return nil, full }
			}
			_, err := m.Step(c, 1, rows, loss)
			var failure *parallel.FailureError
			if !errors.As(err, &failure) || failure.Rank != bad || errors.Is(err, full) != (m.rank == bad) || strings.Count(err.Error(), full.Error()) != 1 {
				return fmt.Errorf("the step ended with %w", err)
			}
			switch {
			case m.rank != bad:
				return errors.Join(m.step(c, 1), m.Close(c))
			case how == 0:
				return m.Close(c)
			case how == 1:
				_ = cease(m.Team)
			}
			return m.w.Close()
		}) {
			if !errors.Is(err, resilient.ErrEnded) {
				require.NoError(t, err, "seed %d: member %d of %d, of which %d fails and goes in way %d", seed, rank, size, bad, how)
			}
		}
	}
}

// TestAMemberThatGivesUpClosingAfterALossIsNotWaitedFor has a worker go, then a member that closes
// the team and does not wait for the others, and then the last.
func TestAMemberThatGivesUpClosingAfterALossIsNotWaitedFor(t *testing.T) {
	errs := leaving(t, 0, 3, delay, func(c context.Context, m *member) error {
		if err := m.step(c, 0); err != nil {
			return err
		}
		time.Sleep(time.Duration(m.rank) * time.Second)
		switch m.rank {
		case 0:
			return errors.Join(m.w.Close(), cease(m.Team))
		case 1:
			return cease(m.Team)
		}
		began := time.Now()
		err := m.Close(c)
		if took := time.Since(began); took > time.Second {
			err = errors.Join(err, fmt.Errorf("it took %v", took))
		}
		return err
	})
	require.ErrorIs(t, errs[0], context.Canceled)
	require.ErrorIs(t, errs[1], context.Canceled)
	require.NoError(t, errs[2])
}

// TestNobodyWaitsForMembersThatGiveUpAtAnyMoment has some members stop waiting, in a step or in
// closing the team, while others vote on who goes on, as one worker has gone.
func TestNobodyWaitsForMembersThatGiveUpAtAnyMoment(t *testing.T) {
	for seed := range uint64(soak.Cases(200)) {
		r := rand.New(rand.NewPCG(seed, 9))
		size := 3 + r.IntN(3)
		steps, stays, starts, gives := make([]bool, size), make([]bool, size), make([]time.Duration, size), make([]time.Duration, size)
		for rank := range size {
			steps[rank], stays[rank] = r.IntN(2) == 0, rank == size-1 || r.IntN(3) == 0
			starts[rank], gives[rank] = time.Duration(r.Int64N(int64(5*delay))), time.Duration(r.Int64N(int64(20*delay)))
		}
		for rank, err := range leaving(t, seed, size, 3*delay, func(c context.Context, m *member) error {
			if err := m.step(c, 0); err != nil {
				return err
			}
			time.Sleep(time.Second + starts[m.rank])
			mine, stop := context.WithTimeout(c, gives[m.rank])
			defer stop()
			var err error
			switch {
			case m.rank == 0:
				stop()
				err = m.w.Close()
			case stays[m.rank]:
				mine = c
			}
			if m.rank > 0 && steps[m.rank] {
				err = m.step(mine, 1)
			}
			return errors.Join(err, m.Close(mine))
		}) {
			if rank > 0 && stays[rank] && !errors.Is(err, resilient.ErrEnded) {
				require.NoError(t, err, "seed %d: member %d, who step: %v, stay: %v", seed, rank, steps, stays)
			}
		}
	}
}
