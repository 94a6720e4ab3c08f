package collective

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/rpc"
)

// sums says that all members of a group sum, and that they are those ranks of the job.
func sums(t *testing.T, gs []*Group, ranks ...int) {
	t.Helper()
	want := []int64{0, int64(len(ranks))}
	for _, r := range ranks {
		want[0] += int64(r)
	}
	each(t, gs, func(i int) error {
		x := []int64{int64(gs[i].Worker().Rank()), 1}
		if err := AllReduce(t.Context(), gs[i], x, Sum); err != nil {
			return err
		}
		if x[0] != want[0] || x[1] != want[1] || gs[i].Size() != len(ranks) {
			return fmt.Errorf("the sum is %v; expected %v", x, want)
		}
		for k, r := range ranks {
			if m := gs[i].Members()[k]; m.WorkerRank != r || m.Rank != k || m.Host == "" || k != gs[i].Rank() && m.Lane == "" {
				return fmt.Errorf("rank %d is %+v", k, m)
			}
		}
		return nil
	})
}

// closed closes groups at the end of the test.
func closed(t *testing.T, gs []*Group) []*Group {
	t.Cleanup(func() {
		for _, g := range gs {
			if g != nil {
				require.NoError(t, g.Close())
			}
		}
	})
	return gs
}

func TestAnErrorOfTheNextGenerationNamesNobodyWhereNobodyIsNamed(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 2), "g")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for names, says := range map[string]string{"": `collective: group "g": `, "nobody": `collective: group "g" without [nobody]: `} {
		_, err := gs[0].Without(over, strings.Fields(names)...)
		require.ErrorContains(t, err, says)
		_, err = gs[0].With(over, strings.Fields(names)...)
		require.ErrorContains(t, err, strings.Replace(says, "without", "with", 1))
	}
}

// then makes the next generation on all.
func then(t *testing.T, of []*Group, fn func(g *Group) (*Group, error)) []*Group {
	t.Helper()
	next := make([]*Group, len(of))
	each(t, of, func(i int) (err error) { next[i], err = fn(of[i]); return err })
	return closed(t, next)
}

func without(t *testing.T, of []*Group, lost ...string) []*Group {
	t.Helper()
	return then(t, of, func(g *Group) (*Group, error) { return g.Without(t.Context(), lost...) })
}

func TestSurvivorsGoOnInTheOrderOfTheirRanks(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 4)
	gs := groups(t, ws, "g")
	sums(t, gs, 0, 1, 2, 3)
	require.NoError(t, ws[1].Close())
	left := []*Group{gs[0], gs[2], gs[3]}
	each(t, left, func(i int) error {
		<-left[i].Done()
		var lost *LostError
		if !errors.As(left[i].Err(), &lost) || lost.Rank != 1 {
			return left[i].Err()
		}
		return nil
	})
	next := without(t, left)
	sums(t, next, 0, 2, 3)
	require.EqualValues(t, 1, next[0].Generation())
	_, err := left[0].Without(t.Context())
	require.ErrorIs(t, err, ErrClosed, "it has a next generation already")
	require.NoError(t, ws[3].Close())
	last := without(t, next[:2], ws[3].Name())
	sums(t, last, 0, 2)
	require.EqualValues(t, 2, last[1].Generation())
	require.NoError(t, ws[0].Close())
	alone := without(t, last[1:])
	sums(t, alone, 2)
}

func TestTwoThatAreLostAtOnceAreBothLeftOut(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 4)
	gs := groups(t, ws, "g")
	each(t, ws, func(i int) error {
		if i%2 == 0 {
			return nil
		}
		return ws[i].Close()
	})
	sums(t, without(t, []*Group{gs[0], gs[2]}, ws[1].Name()), 0, 2)
}

func TestAMemberThatIsLostDuringWithoutIsLeftOutOrEndsTheNextGeneration(t *testing.T) {
	for i := range soak.Cases(20) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			ws := rpctest.World(t, rpctest.Net(), 4)
			gs := groups(t, ws, "g")
			require.NoError(t, ws[3].Close())
			next := make([]*Group, 3)
			each(t, gs[:3], func(r int) (err error) {
				if r == 2 && i%2 == 0 {
					return ws[2].Close() // before it has called
				}
				next[r], err = gs[r].Without(t.Context())
				if r == 2 {
					return errors.Join(err, ws[2].Close()) // when it has just gone on
				}
				for err == nil && next[r].Size() > 2 {
					if err = next[r].Barrier(t.Context()); errors.Is(err, ErrLost) {
						next[r], err = next[r].Without(t.Context())
					}
				}
				return err
			})
			sums(t, closed(t, next)[:2], 0, 1)
		})
	}
}

// TestWhoHasSaidGoodbyeIsNotWaitedFor has two of three members end, in all ways of doing so, while
// the group lives or when it has ended. What they say takes a hundredth of a second.
func TestWhoHasSaidGoodbyeIsNotWaitedFor(t *testing.T) {
	ends := map[string]func(g *Group) error{
		"the group":  func(g *Group) error { return g.Close() },
		"the worker": func(g *Group) error { return g.Worker().Close() },
	}
	for what, end := range ends {
		for _, ended := range []bool{false, true} {
			t.Run(fmt.Sprintf("closes %s, ended before: %v", what, ended), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					gs := groups(t, rpctest.World(t, rpctest.SlowNet(10*time.Millisecond), 3), "g")
					if ended {
						gs[0].Abort(errors.New("it is to end"))
						for _, g := range gs {
							<-g.Done()
						}
					}
					began := time.Now()
					gone := make(chan error, 2)
					for _, g := range gs[:2] {
						go func() { gone <- end(g) }()
					}
					next := without(t, gs[2:]) // it need not name them
					require.NoError(t, errors.Join(<-gone, <-gone))
					require.Less(t, time.Since(began), time.Second)
					sums(t, next, 2)
				})
			})
		}
	}
}

// TestNobodyWaitsForWhoGivesUpAndClosesTheGroupAtAnyMoment has a member do so before, while and
// after the store confirms a generation that it is in.
func TestNobodyWaitsForWhoGivesUpAndClosesTheGroupAtAnyMoment(t *testing.T) {
	const delay = time.Millisecond
	for half := range time.Duration(16) {
		synctest.Test(t, func(t *testing.T) {
			gs := groups(t, rpctest.World(t, rpctest.SlowNet(delay), 4), "g")
			gs[0].Abort(errors.New("it is to end"))
			began, next := time.Now(), make([]*Group, 3)
			each(t, gs, func(r int) error {
				if r == 3 {
					short, cancel := context.WithTimeout(t.Context(), half*delay/2)
					defer cancel()
					g, err := gs[r].Without(short)
					if err != nil {
						g = gs[r]
					}
					return g.Close()
				}
				g, err := gs[r], ErrAborted
				for errors.Is(err, ErrAborted) || errors.Is(err, ErrLost) {
					if g, err = g.Without(t.Context()); err == nil {
						err = g.Barrier(t.Context())
					}
					time.Sleep(10 * delay) // what is said of the end arrives
				}
				next[r] = g
				return err
			})
			require.Less(t, time.Since(began), time.Second, "%d half delays", half)
			for len(closed(t, next)[0].Members()) > 3 {
				next = without(t, next)
			}
			sums(t, next, 0, 1, 2)
		})
	}
}

func TestAMemberThatIsNamedIsToldThatTheOthersGoOnWithoutIt(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 3)
	gs := groups(t, ws, "g")
	pending := make(chan error)
	go func() { pending <- gs[2].Barrier(t.Context()) }()
	next := without(t, gs[:2], ws[2].Name())
	require.ErrorIs(t, <-pending, ErrExcluded)
	_, err := gs[2].Without(t.Context())
	require.ErrorIs(t, err, ErrExcluded)
	require.ErrorContains(t, err, "generation 1 has [worker0 worker1]")
	sums(t, next, 0, 1)
}

func TestWithoutNamesWhoHasNotComeAndMayBeCalledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws := rpctest.World(t, rpctest.SlowNet(time.Millisecond), 4)
		gs := groups(t, ws, "g")
		require.NoError(t, ws[3].Close())
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		for r, err := range attempt(gs[:2], func(r int) error { _, err := gs[r].Without(short); return err }) {
			var late *LateError
			require.ErrorAs(t, err, &late, "rank %d", r)
			require.Equal(t, []string{"worker2"}, late.Missing)
		}
		sums(t, without(t, gs[:3]), 0, 1, 2)
	})
}

func TestAGenerationThatOneCouldNotMakeIsMadeWhenAllCallAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws := rpctest.World(t, rpctest.SlowNet(time.Millisecond), 4)
		gs := groups(t, ws, "g")
		taken, err := rpc.OnPost(ws[2], fmt.Sprintf("collective/%s/1", gs[2].voting.lineage), gs[2].receive)
		require.NoError(t, err)
		require.NoError(t, ws[3].Close())
		short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		errs := attempt(gs[:3], func(r int) error { _, err := gs[r].Without(short); return err })
		for _, err := range errs[:2] {
			var late *LateError
			require.ErrorAs(t, err, &late)
			require.Equal(t, []string{"worker2"}, late.Missing)
		}
		require.ErrorIs(t, errs[2], ErrArguments)
		taken()
		sums(t, without(t, gs[:3]), 0, 1, 2)
	})
}

func TestWithoutRefusesWhoIsNoOtherMember(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 2)
	gs := groups(t, ws, "g")
	for _, name := range []string{"nobody", "worker0"} {
		_, err := gs[0].Without(t.Context(), name)
		require.ErrorIs(t, err, ErrArguments)
	}
	_, err := gs[0].With(t.Context(), "worker1")
	require.ErrorIs(t, err, ErrArguments)
	sums(t, gs, 0, 1)
}

func TestAnAbortEndsTheGroupOnAllWithItsCauseAndTheSameMembersMayGoOn(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 3), "g")
	cause := errors.New("the loss is NaN")
	errs := attempt(gs, func(r int) error {
		if r == 1 {
			gs[1].Abort(cause)
		}
		return gs[r].Barrier(t.Context())
	})
	for r, err := range errs {
		require.ErrorIs(t, err, ErrAborted)
		require.ErrorContains(t, err, "worker1: the loss is NaN", "rank %d", r)
		<-gs[r].Done()
	}
	require.ErrorIs(t, gs[1].Err(), cause)
	sums(t, without(t, gs), 0, 1, 2)
}

// newcomer enlists a worker.
func newcomer(t *testing.T, w *rpc.Worker, name string) (given func() *Group) {
	got, errs := make(chan *Group, 1), make(chan error, 1)
	go func() {
		g, err := Enlist(t.Context(), w, name)
		got <- g
		errs <- err
	}()
	return func() *Group {
		g := <-got
		require.NoError(t, <-errs)
		return closed(t, []*Group{g})[0]
	}
}

func TestNewcomersComeWithTheHighestRanks(t *testing.T) {
	for what, first := range map[string]bool{"newcomers first": true, "members first": false} {
		t.Run(what, func(t *testing.T) { newcomersCome(t, first) })
	}
}

func newcomersCome(t *testing.T, first bool) {
	ws := rpctest.World(t, rpctest.Net(), 5)
	gs := make([]*Group, 2)
	each(t, gs, func(r int) (err error) {
		gs[r], err = Open(t.Context(), ws[r+1], "g", "worker1", "worker2")
		return err
	})
	sums(t, gs, 1, 2)
	var a, b func() *Group
	come := func() { a, b = newcomer(t, ws[0], "g"), newcomer(t, ws[4], "g") }
	if first {
		come()
	}
	next := make([]*Group, 2)
	errs := make(chan error, 2)
	for r := range gs {
		go func() {
			var err error
			next[r], err = gs[r].With(t.Context(), "worker4", "worker0")
			errs <- err
		}()
	}
	if !first {
		sums(t, gs, 1, 2) // the members work meanwhile
		come()
	}
	require.NoError(t, errors.Join(<-errs, <-errs))
	all := append(closed(t, next), a(), b())
	sums(t, all, 1, 2, 0, 4)
	require.EqualValues(t, 1, all[3].Generation())
	require.ErrorIs(t, gs[0].Barrier(t.Context()), ErrClosed)
	require.NoError(t, ws[2].Close())
	sums(t, without(t, []*Group{all[0], all[2], all[3]}), 1, 0, 4)
}

func TestANewcomerThatDoesNotComeIsNamedAndTheGroupLivesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws := rpctest.World(t, rpctest.SlowNet(time.Millisecond), 3)
		gs := make([]*Group, 2)
		each(t, gs, func(r int) (err error) {
			gs[r], err = Open(t.Context(), ws[r], "g", "worker0", "worker1")
			return err
		})
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		for _, err := range attempt(gs, func(r int) error { _, err := gs[r].With(short, "worker2"); return err }) {
			var late *LateError
			require.ErrorAs(t, err, &late)
			require.Contains(t, late.Missing, "worker2")
		}
		sums(t, gs, 0, 1)
		c, stop := context.WithTimeout(t.Context(), time.Millisecond)
		defer stop()
		_, err := Enlist(c, ws[2], "g")
		require.ErrorIs(t, err, rpc.ErrTimeout)
		came := newcomer(t, ws[2], "g")
		next := then(t, gs, func(g *Group) (*Group, error) { return g.With(t.Context(), "worker2") })
		sums(t, append(next, came()), 0, 1, 2)
	})
}

func TestANewcomerThatWaitsForAGenerationThatIsMadeWithoutItComesInALaterOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws := rpctest.World(t, rpctest.SlowNet(time.Millisecond), 4)
		gs := groups(t, ws[:2], "g")
		came := newcomer(t, ws[2], "g")
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		for _, err := range attempt(gs, func(r int) error { _, err := gs[r].With(short, "worker2", "worker3"); return err }) {
			var late *LateError
			require.ErrorAs(t, err, &late)
			require.Equal(t, []string{"worker3"}, late.Missing)
		}
		gs[0].Abort(errors.New("worker3 does not come"))
		next := then(t, gs, func(g *Group) (*Group, error) { return g.Without(t.Context()) })
		require.Equal(t, 2, next[0].Size())
		next = then(t, next, func(g *Group) (*Group, error) { return g.With(t.Context(), "worker2") })
		sums(t, append(next, came()), 0, 1, 2)
	})
}
