package rpc

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/rpc/internal/codec"
	"github.com/weft-project/weft/rpc/internal/refs"
	"github.com/weft-project/weft/transport/simnet"
)

func TestAReferenceToOneselfIsAnArgumentOfCallsAndRemotesToAnyone(t *testing.T) {
	ws := sim(t, 2, refFunctions)
	c := ws[0].Context(t.Context())
	r := constant.Remote(c, "worker0", 6)
	for _, to := range []string{"worker0", "worker1"} {
		n, err := readRef.Call(c, to, r)
		require.NoError(t, err)
		require.Equal(t, 6, n)
		there := readRef.Remote(c, to, r)
		n, err = there.ToHere(c)
		require.NoError(t, err)
		require.Equal(t, 6, n)
		there.Release()
	}
	r.Release()
	nothing(t, ws)
}

func TestRemotesNest(t *testing.T) {
	b := &box{}
	nest := Define("nest", func(c context.Context, to string) (int, error) {
		r := constant.Remote(c, to, 8)
		defer r.Release()
		b.mu.Lock()
		defer b.mu.Unlock()
		return r.ToHere(c)
	})
	ws := sim(t, 3, serve(nest, constant))
	c := ws[0].Context(t.Context())
	var all []RRef[int]
	for i := range 20 {
		all = append(all, nest.Remote(c, fmt.Sprintf("worker%d", i%3), fmt.Sprintf("worker%d", i/3%3)))
	}
	for _, r := range all {
		n, err := r.ToHere(c)
		require.NoError(t, err)
		require.Equal(t, 8, n)
		r.Release()
	}
	nothing(t, ws)
}

func TestAReferenceReadsAsItsOwnerAndItsCreatorsCount(t *testing.T) {
	ws := sim(t, 2, refFunctions)
	c := ws[0].Context(t.Context())
	first, second := constant.Remote(c, "worker1", 1), constant.Remote(c, "worker1", 2)
	mine, err := NewRRef(c, 3)
	require.NoError(t, err)
	require.Equal(t, "RRef(worker1, 0.1)", first.String())
	require.Equal(t, "RRef(worker1, 0.2)", second.String())
	require.Equal(t, "RRef(worker0, 0.1)", mine.String())
	for _, r := range []RRef[int]{first, second, mine} {
		require.NoError(t, r.Ready(c))
		r.Release()
	}
}

func TestALocalValueIsForItsOwnerAlone(t *testing.T) {
	ws := sim(t, 2, refFunctions)
	c := ws[0].Context(t.Context())
	mine, err := NewRRef(c, 3)
	require.NoError(t, err)
	n, err := mine.LocalValue(c)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	theirs := constant.Remote(c, "worker1", 2)
	_, err = theirs.LocalValue(c)
	require.ErrorIs(t, err, ErrNotOwner)
	require.EqualError(t, err, "worker0: local value on worker1: not the owner; use ToHere: the value is on worker1")
	mine.Release()
	theirs.Release()
}

func TestTheCountsOfReferencesFollowTheirLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		hold := Define("hold", func(_ context.Context, r RRef[int]) (int, error) { defer r.Release(); <-gate; return 0, nil })
		ws, _ := simWith(t, 3, simnet.Config{MinDelay: time.Millisecond}, serve(constant, hold))
		counts := func() (rs [3]References) {
			time.Sleep(time.Second)
			for i, w := range ws {
				rs[i] = w.References()
			}
			return rs
		}
		c := ws[0].Context(t.Context())
		require.Equal(t, [3]References{}, counts())
		mine, err := NewRRef(c, 1)
		require.NoError(t, err)
		require.Equal(t, [3]References{{Owners: 1, Forks: 1}}, counts())
		theirs := constant.Remote(c, "worker1", 1)
		require.Equal(t, 1, ws[0].References().PendingUsers, "it is being made")
		require.Equal(t, [3]References{{Owners: 1, Forks: 1}, {Owners: 1, Forks: 1}}, counts())
		one, two := hold.Async(c, "worker2", mine), hold.Async(c, "worker2", theirs)
		require.Equal(t, [3]References{{Owners: 1, Forks: 2}, {Owners: 1, Forks: 2}}, counts(), "the children are confirmed")
		mine.Release()
		theirs.Release()
		require.Equal(t, [3]References{{Owners: 1, Forks: 1}, {Owners: 1, Forks: 1}}, counts())
		close(gate)
		for _, f := range []*Future[int]{one, two} {
			_, err := f.Wait(c)
			require.NoError(t, err)
		}
		require.Equal(t, [3]References{}, counts())
	})
}

func TestEveryReferenceIsConfirmedBeforeTheFunctionThatGetsItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type three struct{ A, B, C RRef[int] }
		check := Define("check", func(c context.Context, in three) (bool, error) {
			ok := true
			for _, r := range []RRef[int]{in.A, in.B, in.C} {
				ok = ok && r.Confirmed() && r.Ready(c) == nil
				r.Release()
			}
			return ok, nil
		})
		ws, _ := simWith(t, 4, simnet.Config{MinDelay: 100 * time.Millisecond}, serve(constant, check))
		c := ws[0].Context(t.Context())
		var in three
		for i, r := range []*RRef[int]{&in.A, &in.B, &in.C} {
			*r = constant.Remote(c, fmt.Sprintf("worker%d", i+1), i)
			require.NoError(t, r.Ready(c))
		}
		start := time.Now()
		for i, to := range []string{"worker1", "worker2", "worker3"} {
			there := check.Remote(c, to, in)
			ok, err := there.ToHere(c)
			require.NoError(t, err)
			require.True(t, ok, "worker%d", i)
			there.Release()
		}
		took := time.Since(start)
		require.Equal(t, 3*600*time.Millisecond, took, "there and back, fetch, and all owners are asked at once")
		for _, r := range []RRef[int]{in.A, in.B, in.C} {
			r.Release()
		}
		time.Sleep(time.Second)
		nothing(t, ws)
	})
}

func TestAReferenceThatTheReceiverHasNoFieldForIsGivenBack(t *testing.T) {
	type more struct {
		N int
		R RRef[int]
	}
	type less struct{ N int }
	wide := Define("sum", func(_ context.Context, in more) (int, error) { return in.N, nil })
	narrow := Define("sum", func(_ context.Context, in less) (int, error) { return in.N, nil })
	ws := sim(t, 3, func(_ int, cfg *Config) { cfg.Functions = []Function{narrow, constant} })
	c := ws[0].Context(t.Context())
	mine, err := NewRRef(c, 1)
	require.NoError(t, err)
	theirs := constant.Remote(c, "worker2", 1)
	for _, r := range []RRef[int]{mine, theirs} {
		n, err := wide.Call(c, "worker1", more{4, r})
		require.NoError(t, err)
		require.Equal(t, 4, n)
		r.Release()
	}
	nothing(t, ws)
}

func TestAReferenceThatAValueHoldsTwiceTravelsOnce(t *testing.T) {
	twice := Define("twice", func(_ context.Context, in []RRef[int]) (bool, error) {
		in[0].Release()
		return in[0] == in[1], nil
	})
	ws := sim(t, 3, serve(twice, constant))
	c := ws[0].Context(t.Context())
	r := constant.Remote(c, "worker2", 1)
	same, err := twice.Call(c, "worker1", []RRef[int]{r, r})
	require.NoError(t, err)
	require.True(t, same, "copies share one count there too")
	r.Release()
	nothing(t, ws)
}

func TestReferencesOfArgumentsThatDoNotFitAreGivenBack(t *testing.T) {
	type one struct {
		R RRef[int]
		N int
	}
	type other struct {
		R RRef[int]
		N string
	}
	sent := Define("fit", func(context.Context, one) (int, error) { return 0, nil })
	served := Define("fit", func(context.Context, other) (int, error) { return 0, nil })
	ws := sim(t, 3, func(_ int, cfg *Config) { cfg.Functions = []Function{served, constant} })
	c := ws[0].Context(t.Context())
	r := constant.Remote(c, "worker2", 1)
	_, err := sent.Call(c, "worker1", one{r, 1})
	require.ErrorIs(t, err, ErrArguments)
	r.Release()
	nothing(t, ws)
}

func TestAMessageHoldsABoundedNumberOfReferences(t *testing.T) {
	ws := sim(t, 2, refFunctions)
	c := ws[0].Context(t.Context())
	many := make([]RRef[int], codec.MaxRefs+1)
	for i := range many {
		many[i] = RRef[int]{failedRef(nil)}
	}
	count := Define("count", func(_ context.Context, in []RRef[int]) (int, error) { return len(in), nil })
	_, err := count.Call(c, "worker1", many)
	require.ErrorIs(t, err, ErrArguments)
	_, err = ws[1].refs.hold(c, ws[1].members.PeerAt(0), make([]refs.Share, codec.MaxRefs+1))
	require.ErrorIs(t, err, ErrProtocol)
}

func TestReferencesOfAWorkerThatIsClosedAreOfNoUse(t *testing.T) {
	ws := sim(t, 2, refFunctions)
	c := ws[0].Context(t.Context())
	r := constant.Remote(c, "worker1", 1)
	require.NoError(t, r.Ready(c))
	require.NoError(t, ws[0].Close())
	_, err := r.ToHere(c)
	require.ErrorIs(t, err, ErrLeft)
	_, err = readRef.Call(c, "worker1", r)
	require.ErrorIs(t, err, ErrLeft)
	require.ErrorIs(t, constant.Remote(c, "worker1", 1).Ready(c), ErrLeft)
	r.Release()
	owns(t, ws[1], 0)
}

func TestReferencesOfOneWorkerAreNotSentByAnother(t *testing.T) {
	ws := sim(t, 2, refFunctions)
	r, err := NewRRef(ws[0].Context(t.Context()), 1)
	require.NoError(t, err)
	_, err = readRef.Call(ws[1].Context(t.Context()), "worker0", r)
	require.ErrorIs(t, err, ErrArguments)
	require.ErrorContains(t, err, "belongs to another worker of this process")
	r.Release()
	nothing(t, ws)
}
