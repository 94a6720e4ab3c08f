package resilient_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/parallel/resilient"
	"github.com/weft-project/weft/transport/simnet"
)

// TestMembersCloseTheTeamWhileOtherWorkersLiveOrEnd has each leave after a step of its own or all
// after the same one. Some workers end with it, and others live on.
func TestMembersCloseTheTeamWhileOtherWorkersLiveOrEnd(t *testing.T) {
	const delay = time.Millisecond
	for seed := range uint64(soak.Cases(300)) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			size := 2 + r.IntN(3)
			net := simnet.New(simnet.Config{MinDelay: delay / 10, MaxDelay: 5 * delay, Logger: slog.New(slog.DiscardHandler)})
			w := &crowd{t, net, rpctest.World(t, net, size)}
			c, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			last, ends, pauses := make([]int, size), make([]bool, size), make([][]time.Duration, size)
			for rank := range size {
				last[rank], ends[rank] = 3+r.IntN(2), r.IntN(2) == 0
				for range last[rank] {
					pauses[rank] = append(pauses[rank], time.Duration(r.Int64N(int64(5*delay))))
				}
			}
			runs := w.train(func(rank int) run {
				l := newLearner(1)
				team, err := w.found(c, rank, size, l.config())
				if err != nil {
					return run{err: err}
				}
				made := train(c, team, l, last[rank], func(step uint64) error { time.Sleep(pauses[rank][step]); return nil })
				if ends[rank] {
					made.err = errors.Join(made.err, w.ws[rank].Close())
				}
				return made
			})
			for rank, r := range runs {
				if !errors.Is(r.err, resilient.ErrEnded) {
					require.NoError(t, r.err, "seed %d: member %d of %v, whose workers end: %v", seed, rank, last, ends)
				}
			}
		})
	}
}

// TestAMemberThatGivesUpClosingAfterALossIsNotWaitedFor has a worker go, then a member that closes
// the team and does not wait for the others, and then the last.
func TestAMemberThatGivesUpClosingAfterALossIsNotWaitedFor(t *testing.T) {
	const size = 3
	synctest.Test(t, func(t *testing.T) {
		net := rpctest.SlowNet(time.Millisecond)
		w := &crowd{t, net, rpctest.World(t, net, size)}
		c, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		gaveUp, giveUp := context.WithCancel(c)
		giveUp()
		runs := w.train(func(rank int) (made run) {
			l := newLearner(1)
			team, err := w.found(c, rank, size, l.config())
			if err == nil {
				_, err = team.Step(c, 0, rows, l.loss)
			}
			if err != nil {
				return run{err: err}
			}
			time.Sleep(time.Duration(rank) * time.Second)
			switch rank {
			case 0:
				return run{err: errors.Join(w.ws[rank].Close(), team.Close(gaveUp))}
			case 1:
				return run{err: team.Close(gaveUp)}
			}
			return run{err: team.Close(c)}
		})
		require.ErrorIs(t, runs[0].err, context.Canceled)
		require.ErrorIs(t, runs[1].err, context.Canceled)
		require.NoError(t, runs[2].err)
	})
}

// TestNobodyWaitsForMembersThatGiveUpAtAnyMoment has some members stop waiting, in a step or in
// closing the team, while others vote on who goes on, as one worker has gone.
func TestNobodyWaitsForMembersThatGiveUpAtAnyMoment(t *testing.T) {
	const delay = time.Millisecond
	for seed := range uint64(soak.Cases(200)) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 9))
			size := 3 + r.IntN(3)
			net := simnet.New(simnet.Config{MinDelay: delay / 10, MaxDelay: 3 * delay, Logger: slog.New(slog.DiscardHandler)})
			w := &crowd{t, net, rpctest.World(t, net, size)}
			c, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			steps, stays, starts, gives := make([]bool, size), make([]bool, size), make([]time.Duration, size), make([]time.Duration, size)
			for rank := range size {
				steps[rank], stays[rank] = r.IntN(2) == 0, rank == size-1 || r.IntN(3) == 0
				starts[rank], gives[rank] = time.Duration(r.Int64N(int64(5*delay))), time.Duration(r.Int64N(int64(20*delay)))
			}
			runs := w.train(func(rank int) run {
				l := newLearner(1)
				team, err := w.found(c, rank, size, l.config())
				if err == nil {
					_, err = team.Step(c, 0, rows, l.loss)
				}
				if err != nil {
					return run{err: err}
				}
				time.Sleep(time.Second + starts[rank])
				mine, stop := context.WithTimeout(c, gives[rank])
				defer stop()
				switch {
				case rank == 0:
					stop()
					err = w.ws[rank].Close()
				case stays[rank]:
					mine = c
				}
				if rank > 0 && steps[rank] {
					_, err = team.Step(mine, 1, rows, l.loss)
				}
				return run{err: errors.Join(err, team.Close(mine))}
			})
			for rank, r := range runs {
				if rank > 0 && stays[rank] && !errors.Is(r.err, resilient.ErrEnded) {
					require.NoError(t, r.err, "seed %d: member %d, who step: %v, stay: %v", seed, rank, steps, stays)
				}
			}
		})
	}
}
