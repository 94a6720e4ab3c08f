package resilient_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/parallel/resilient"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport/simnet"
)

// TestATeamIsNotPartedWhereANewcomerComesForSomeMembersInTimeAndForOthersTooLate has what one
// worker says to another arrive late, each time another one, so that a member gives up waiting for
// a newcomer before, while or after the others take it in.
func TestATeamIsNotPartedWhereANewcomerComesForSomeMembersInTimeAndForOthersTooLate(t *testing.T) {
	const size, guest = 3, 2
	for from := range size {
		for to := range size {
			for late := 1500 * time.Millisecond; late < 3*time.Second && from != to; late += 600 * time.Millisecond {
				t.Run(fmt.Sprintf("from %d to %d, %v", from, to, late), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						c, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
						defer cancel()
						net := simnet.New(simnet.Config{Logger: slog.New(slog.DiscardHandler), Delay: func(a, b string, _ *rand.Rand) time.Duration {
							if a == rpctest.Host(from) && b == rpctest.Host(to) {
								return late
							}
							return time.Millisecond
						}})
						w := &crowd{t, net, rpctest.World(t, net, size)}
						for rank, err := range w.enlarge(c, guest) {
							require.NoError(t, err, "member %d", rank)
						}
					})
				})
			}
		}
	}
}

// enlarge trains until a newcomer has come, who brings another model's values.
func (w *crowd) enlarge(c context.Context, guest int) []error {
	came := make(chan struct{})
	return rpctest.Attempt(len(w.ws), func(rank int) error {
		l := newLearner(uint64(1 + rank/guest))
		if rank == guest {
			defer close(came)
			team, err := resilient.Join(c, w.ws[rank], teamName, l.config())
			if err != nil {
				return err
			}
			return team.Close(c)
		}
		team, err := w.found(c, rank, guest, l.config())
		for err == nil {
			select {
			case <-came:
				return team.Close(c)
			default:
				_, err = team.Step(c, team.Next(), rows, l.loss)
				time.Sleep(time.Second)
			}
		}
		return err
	})
}

// TestANewcomerThatCallsAndDoesNotComeHoldsUpTheOthersForATenthOfTheirTime has a worker call again
// and again, and not listen. Another newcomer that is invited with it comes all the same.
func TestANewcomerThatCallsAndDoesNotComeHoldsUpTheOthersForATenthOfTheirTime(t *testing.T) {
	const founders, caller, guest, steps = 2, 2, 3, 100
	for _, comes := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newCrowd(t, founders+2)
			c, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
			defer cancel()
			calling, stop := context.WithCancel(c)
			defer stop()
			began := time.Now()
			runs := w.train(func(rank int) run {
				l := newLearner(1)
				for rank == caller && calling.Err() == nil {
					for _, o := range w.ws[:founders] {
						_ = rpc.Post(calling, w.ws[rank], o.Name(), "resilient/"+teamName, []byte{0xa1, 1, 1}) // {1: 1}, a call
					}
					time.Sleep(50 * time.Millisecond)
				}
				var team *resilient.Team
				var err error
				switch {
				case rank == caller, rank == guest && !comes:
					return run{}
				case rank == guest:
					team, err = resilient.Join(c, w.ws[rank], teamName, l.config())
				default:
					team, err = w.found(c, rank, founders, l.config())
				}
				if err != nil {
					return run{err: err}
				}
				r := train(c, team, l, steps, func(uint64) error { time.Sleep(time.Second); return nil })
				stop()
				return r
			})
			took := time.Since(began)
			require.Less(t, took, steps*time.Second*5/4)
			require.Greater(t, took, (steps+4)*time.Second, "it was waited for")
			left := runs[:founders]
			if comes {
				left = append(left, runs[guest])
				require.Less(t, runs[guest].first, uint64(10))
			}
			requireUndisturbed(t, alone(t, steps), left...)
		})
	}
}
