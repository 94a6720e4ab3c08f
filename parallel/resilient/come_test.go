package resilient_test

import (
	"context"
	crand "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/parallel/resilient"
)

// slowly is a pause before each step, so that who is to come is there before the end.
func slowly(uint64) error {
	time.Sleep(2 * time.Millisecond)
	return nil
}

func TestAWorkerThatComesLaterGetsTheStateAndTheLossesStayTheSame(t *testing.T) {
	const founders, steps = 2, 120
	w := newCrowd(t, founders+1)
	c := within(t)
	histories, begun := make([][]resilient.Made, founders+1), make(chan struct{})
	runs := w.train(func(rank int) run {
		l := newLearner(uint64(1 + rank/founders)) // the newcomer begins with other values
		cfg := l.config()
		cfg.Bucket = 1
		cfg.Made = func(m resilient.Made) { histories[rank] = append(histories[rank], m) }
		cfg.Save = func() ([]byte, error) { return json.Marshal(histories[rank]) }
		cfg.Load = func(b []byte) error { return json.Unmarshal(b, &histories[rank]) }
		var team *resilient.Team
		var err error
		if rank < founders {
			team, err = w.found(c, rank, founders, cfg)
		} else {
			<-begun
			team, err = resilient.Join(c, w.ws[rank], teamName, cfg)
		}
		if err != nil {
			return run{err: err}
		}
		return train(c, team, l, steps, func(step uint64) error {
			if rank == 0 && step == 3 {
				close(begun)
			}
			return slowly(step)
		})
	})
	requireUndisturbed(t, alone(t, steps), runs...)
	require.Positive(t, runs[founders].first)
	for rank, h := range histories {
		require.Len(t, h, steps, "member %d", rank)
		require.Equal(t, histories[0], h, "member %d", rank)
	}
	require.Equal(t, founders, histories[0][0].Members)
	require.Equal(t, founders+1, histories[0][steps-1].Members)
}

// TestMembersMayBeLostWhileOthersCome has workers come and go at random moments, so that newcomers
// are lost while they catch up, and members from which they get the state.
func TestMembersMayBeLostWhileOthersCome(t *testing.T) {
	const founders, guests, steps = 3, 3, 150
	want := alone(t, steps)
	var came atomic.Int64
	for seed := range uint64(soak.Cases(5)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 9))
			w := newCrowd(t, founders+guests)
			dies := map[int]time.Duration{}
			for _, rank := range r.Perm(founders + guests)[:1+r.IntN(founders+guests-2)] {
				if rank > 0 { // one stays, or there may be nobody who has the state
					dies[rank] = time.Duration(r.IntN(250)) * time.Millisecond
				}
			}
			waits := make([]time.Duration, founders+guests)
			for i := range waits {
				waits[i] = time.Duration(r.IntN(100)) * time.Millisecond
			}
			c := within(t)
			var founded sync.WaitGroup // a group that is being opened ends with any member
			founded.Add(founders)
			joining, left := context.WithCancelCause(c)
			var members atomic.Int64
			members.Add(founders)
			leaves := func() {
				if members.Add(-1) == 0 { // nobody takes anybody in any more
					left(resilient.ErrEnded)
				}
			}
			runs := w.train(func(rank int) (got run) {
				var end sync.WaitGroup
				defer end.Wait()
				l := newLearner(1)
				var team *resilient.Team
				if rank >= founders {
					time.Sleep(waits[rank]) // it comes at some moment
				}
				if delay, mortal := dies[rank]; mortal {
					end.Go(func() {
						founded.Wait()
						time.Sleep(delay)
						_ = w.ws[rank].Close()
					})
				}
				if rank < founders {
					defer leaves()
					team, got.err = w.found(c, rank, founders, l.config())
					founded.Done()
				} else {
					team, got.err = resilient.Join(joining, w.ws[rank], teamName, l.config())
				}
				if got.err != nil {
					return got
				}
				if rank >= founders {
					members.Add(1)
					defer leaves()
					came.Add(1)
				}
				defer team.Close(c) //nolint:errcheck // its worker may be gone
				return train(c, team, l, steps, slowly)
			})
			var last []run
			for rank, r := range runs {
				_, mortal := dies[rank]
				late := rank >= founders && errors.Is(r.err, resilient.ErrEnded) // on a slow machine
				if !mortal && !late {
					last = append(last, r)
				}
			}
			requireUndisturbed(t, want, last...)
		})
	}
	require.Positive(t, came.Load())
}

func TestATeamWithFewerThanMinWaitsForOthersAndSaysSo(t *testing.T) {
	const founders, steps = 2, 100
	w := newCrowd(t, founders+1)
	c := within(t)
	short := make(chan resilient.Change, 1)
	runs := w.train(func(rank int) run {
		l := newLearner(1)
		cfg := l.config()
		cfg.Min = founders
		var team *resilient.Team
		var err error
		if rank == founders {
			change := <-short // nobody comes before they wait
			require.Equal(t, []string{w.ws[0].Name()}, change.Members)
			require.Equal(t, []string{w.ws[1].Name()}, change.Lost)
			team, err = resilient.Join(c, w.ws[rank], teamName, cfg)
		} else {
			cfg.Changed = func(change resilient.Change) {
				if change.Short == 1 {
					short <- change
				}
			}
			team, err = w.found(c, rank, founders, cfg)
		}
		if err != nil {
			return run{err: err}
		}
		return train(c, team, l, steps, func(step uint64) error {
			if rank == 1 && step == 7 {
				return w.ws[rank].Close()
			}
			return slowly(step)
		})
	})
	require.Error(t, runs[1].err)
	requireUndisturbed(t, alone(t, steps), runs[0], runs[2])
	require.GreaterOrEqual(t, runs[2].first, uint64(7))
}

func TestNewcomersBeyondMaxWaitUntilThereIsRoom(t *testing.T) {
	const founders, steps = 2, 150
	w := newCrowd(t, founders+1)
	c := within(t)
	runs := w.train(func(rank int) run {
		l := newLearner(1)
		cfg := l.config()
		cfg.Max = founders
		var team *resilient.Team
		var err error
		if rank == founders {
			team, err = resilient.Join(c, w.ws[rank], teamName, cfg)
		} else {
			team, err = w.found(c, rank, founders, cfg)
		}
		if err != nil {
			return run{err: err}
		}
		return train(c, team, l, steps, func(step uint64) error {
			if team.Size() > founders {
				return fmt.Errorf("there are %d members", team.Size())
			}
			if rank == 1 && step == 60 {
				return w.ws[rank].Close()
			}
			return slowly(step)
		})
	})
	require.Error(t, runs[1].err)
	requireUndisturbed(t, alone(t, steps), runs[0], runs[2])
	require.GreaterOrEqual(t, runs[2].first, uint64(60))
}

func TestMembersThatBeginBehindOthersGetTheirState(t *testing.T) {
	const size, ahead, steps = 3, 5, 100
	want := alone(t, steps)
	w := newCrowd(t, size)
	c := within(t)
	runs := w.train(func(rank int) run {
		l := newLearner(uint64(1 + rank)) // others begin with other values, and at the beginning
		cfg := l.config()
		if rank == 0 {
			cfg.Step = ahead
			for step := range uint64(ahead) {
				if _, err := l.step(c, step); err != nil {
					return run{err: err}
				}
			}
		}
		team, err := w.found(c, rank, size, cfg)
		if err != nil {
			return run{err: err}
		}
		return train(c, team, l, steps, slowly)
	})
	requireUndisturbed(t, want, runs...)
	require.EqualValues(t, ahead, runs[0].first)
	require.Greater(t, runs[1].first, uint64(ahead))
}

func TestANewcomerWithAnotherModelIsToldSoAndTheOthersTrainOn(t *testing.T) {
	const founders, steps = 2, 100
	w := newCrowd(t, founders+1)
	c := within(t)
	runs := w.train(func(rank int) run {
		l := newLearner(1)
		if rank < founders {
			team, err := w.found(c, rank, founders, l.config())
			if err != nil {
				return run{err: err}
			}
			return train(c, team, l, steps, slowly)
		}
		other := newWiderLearner()
		_, err := resilient.Join(c, w.ws[rank], teamName, other.config())
		return run{err: err}
	})
	requireUndisturbed(t, alone(t, steps), runs[:founders]...)
	var differ *resilient.DifferenceError
	require.ErrorAs(t, runs[founders].err, &differ)
	require.Equal(t, w.ws[founders].Name(), differ.Worker)
	require.Contains(t, differ.Here, "parameter 0.B")
}

func TestWhoClosesTheTeamEarlyLeavesTheOthersAtWork(t *testing.T) {
	const size, steps = 3, 40
	w := newCrowd(t, size)
	c := within(t)
	runs := make([]run, size)
	rpctest.Attempt(size, func(rank int) error {
		l := newLearner(1)
		team, err := w.found(c, rank, size, l.config())
		if err != nil {
			runs[rank].err = err
			return nil
		}
		until := steps
		if rank == 1 {
			until = 13
		}
		runs[rank] = train(c, team, l, until, nil)
		return nil
	})
	require.NoError(t, runs[1].err)
	require.Len(t, runs[1].losses, 13)
	requireUndisturbed(t, alone(t, steps), runs[0], runs[2])
}

func TestANewcomerGetsAStateWhoseListIsLargerThanAMessagesHeader(t *testing.T) {
	w := newCrowd(t, 2)
	c := within(t)
	own := make([]byte, 2<<20) // of the program, which is in the list
	_, _ = crand.Read(own)
	var got []byte
	came := make(chan struct{})
	for rank, err := range rpctest.Attempt(2, func(rank int) error {
		l := newLearner(uint64(1 + rank))
		cfg := l.config()
		cfg.Save = func() ([]byte, error) { return own, nil }
		cfg.Load = func(b []byte) error { got = b; return nil }
		if rank == 1 {
			defer close(came)
			team, err := resilient.Join(c, w.ws[rank], teamName, cfg)
			if err != nil {
				return err
			}
			return team.Close(c)
		}
		team, err := w.found(c, rank, 1, cfg)
		for err == nil {
			select {
			case <-came:
				return team.Close(c)
			default:
				_, err = team.Step(c, team.Next(), rows, l.loss)
			}
		}
		return err
	}) {
		require.NoError(t, err, "rank %d", rank)
	}
	require.Equal(t, own, got)
}

// TestANewcomerThatIsFasterThanTheTeamComesHoweverLittleThatIs has steps of a newcomer's own take a
// second, and the team's one and a half or three.
func TestANewcomerThatIsFasterThanTheTeamComesHoweverLittleThatIs(t *testing.T) {
	const founders, steps = 2, 60
	for _, pace := range []time.Duration{1500 * time.Millisecond, 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			w := newCrowd(t, founders+1)
			c, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
			defer cancel()
			begun := make(chan struct{})
			runs := w.train(func(rank int) run {
				l := newLearner(1)
				cfg, before := l.config(), func(uint64) error { time.Sleep(pace); return nil }
				if rank < founders {
					team, err := w.found(c, rank, founders, cfg)
					if err != nil {
						return run{err: err}
					}
					return train(c, team, l, steps, func(step uint64) error {
						if rank == 0 && step == 3 {
							close(begun)
						}
						return before(step)
					})
				}
				<-begun
				cfg.Made = func(resilient.Made) { time.Sleep(time.Second) }
				team, err := resilient.Join(c, w.ws[rank], teamName, cfg)
				if err != nil {
					return run{err: err}
				}
				return train(c, team, l, steps, before)
			})
			requireUndisturbed(t, alone(t, steps), runs...)
			require.Less(t, runs[founders].first, uint64(steps/2), "steps of %v", pace)
		})
	}
}

// TestANewcomerThatStillGetsTheStateTellsOfALossOnceTheOthersGoOn has a founder go while a newcomer
// takes over the state, for ten steps.
func TestANewcomerThatStillGetsTheStateTellsOfALossOnceTheOthersGoOn(t *testing.T) {
	const founders, steps, pace = 3, 60, 1500 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		w := newCrowd(t, founders+1)
		c, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
		defer cancel()
		begun, came := make(chan struct{}), make(chan struct{})
		var told []resilient.Change
		runs := w.train(func(rank int) run {
			l := newLearner(1)
			cfg := l.config()
			cfg.Save = func() ([]byte, error) { return nil, nil }
			cfg.Load = func([]byte) error { time.Sleep(10 * pace); return nil }
			if rank < founders {
				team, err := w.found(c, rank, founders, cfg)
				if err != nil {
					return run{err: err}
				}
				return train(c, team, l, steps, func(step uint64) error {
					if rank == 0 && step == 3 {
						close(begun)
					}
					time.Sleep(pace)
					if rank == 1 && team.Size() > founders {
						return w.ws[rank].Close()
					}
					return nil
				})
			}
			<-begun
			cfg.Changed = func(change resilient.Change) {
				select {
				case <-came:
				default:
					told = append(told, change)
				}
			}
			team, err := resilient.Join(c, w.ws[rank], teamName, cfg)
			close(came)
			if err != nil {
				return run{err: err}
			}
			return train(c, team, l, steps, func(uint64) error { time.Sleep(pace); return nil })
		})
		require.Error(t, runs[1].err)
		requireUndisturbed(t, alone(t, steps), runs[0], runs[2], runs[3])
		require.Len(t, told, 1, "it hears of the loss before it has the state")
		require.Equal(t, []string{w.ws[1].Name()}, told[0].Lost)
		require.Less(t, told[0].Stood, 2*pace)
	})
}
