package rpc

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// bunch makes values on the named workers, or on its own without names, and returns the references
// to them.
var bunch = Define("bunch", func(c context.Context, owners []string) (refs []RRef[int], err error) {
	for i, owner := range owners {
		refs = append(refs, constant.Remote(c, owner, i))
	}
	if len(owners) > 0 {
		return refs, nil
	}
	refs = make([]RRef[int], 3)
	for i := range refs {
		if refs[i], err = NewRRef(c, i); err != nil {
			return nil, err
		}
	}
	return refs, nil
})

// readAll reads references that are to say their positions, and releases them.
func readAll(t *testing.T, c context.Context, refs []RRef[int], want int) {
	t.Helper()
	require.Len(t, refs, want)
	for i, r := range refs {
		require.True(t, r.Confirmed())
		n, err := r.ToHere(c)
		require.NoError(t, err)
		require.Equal(t, i, n)
		r.Release()
	}
}

func TestReferencesInAValueAreFetchedWithItHoweverOften(t *testing.T) {
	ws := sim(t, 3, serve(bunch, constant))
	c := ws[0].Context(t.Context())
	for round := range 5 {
		for _, to := range []string{"worker0", "worker1", "worker2"} {
			outer := bunch.Remote(c, to, []string{"worker0", "worker1", "worker2", Rank(round % 3)})
			for range 3 {
				inner, err := outer.ToHere(c)
				require.NoError(t, err)
				readAll(t, c, inner, 4)
			}
			outer.Release()
		}
	}
	for _, w := range ws {
		collected(t, "all is dropped", func() bool { return w.References() == References{} })
	}
}

func TestAFunctionReturnsManyReferencesToValuesOfItsWorker(t *testing.T) {
	ws := sim(t, 2, serve(bunch))
	c := ws[0].Context(t.Context())
	for _, to := range []string{"worker1", "worker0"} {
		refs, err := bunch.Call(c, to, nil)
		require.NoError(t, err)
		for _, r := range refs {
			require.Equal(t, to, r.Owner())
		}
		readAll(t, c, refs, 3)
	}
	for _, w := range ws {
		collected(t, "all is dropped", func() bool { return w.References() == References{} })
	}
}

// link is a value that refers to another.
type link struct{ next RRef[*link] }

var (
	newLink = Define("link", func(context.Context, int) (*link, error) { return &link{}, nil })
	join    = DefineMethod("link.join", func(_ context.Context, self *link, next RRef[*link]) (int, error) {
		self.next = next
		return 0, nil
	})
)

// Nobody can see that such values are out of reach; they are kept until their workers leave, and
// the leave does not wait for them.
func TestReferencesInACircleDoNotKeepTheirWorkersFromLeaving(t *testing.T) {
	ws := sim(t, 3, serve(newLink, join)) // in no bubble: the collector's clean-ups run outside of it
	c := ws[0].Context(t.Context())
	var ring []RRef[*link]
	for i := range 4 { // over three workers, and a value that refers to itself
		ring = append(ring, newLink.Remote(c, Rank(i%3), 0))
	}
	for i, r := range ring {
		next := ring[(i+1)%3]
		if i == 3 {
			next = r
		}
		_, err := join.Call(c, r, next)
		require.NoError(t, err)
	}
	for _, r := range ring {
		r.Release()
	}
	for i, owned := range []int{2, 1, 1} {
		collected(t, "the circles alone are left", func() bool { return ws[i].References() == References{Owners: owned, Forks: owned} })
	}
	leaveAll(t, ws)
}

func TestAReferenceTravelsInCallsAndNotInGatherings(t *testing.T) {
	ws := sim(t, 2, refFunctions)
	c := ws[0].Context(t.Context())
	r, err := NewRRef(c, 1)
	require.NoError(t, err)
	_, err = AllGather(c, r)
	require.ErrorIs(t, err, ErrArguments)
	require.ErrorContains(t, err, "tensors or references")
	r.Release()
	nothing(t, ws)
}

func TestManyRemotesOnOneWorkerGiveEachItsOwnValue(t *testing.T) {
	ws := sim(t, 2, refFunctions)
	c := ws[0].Context(t.Context())
	var all []RRef[int]
	for i := range 50 {
		all = append(all, constant.Remote(c, "worker1", i))
	}
	seen := map[string]bool{}
	for i, r := range all {
		n, err := r.ToHere(c)
		require.NoError(t, err)
		require.Equal(t, i, n)
		require.False(t, seen[r.String()], "%v", r)
		seen[fmt.Sprint(r)] = true
		r.Release()
	}
	nothing(t, ws)
}
