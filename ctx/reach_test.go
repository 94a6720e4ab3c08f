//go:build !race

package ctx

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/soak"
)

// The oracle: go along every way from every member's roots, through what any member wants.
func reachedFrom(facts [][]fact, ops int) []bool {
	wanted, live := make([]bool, ops), make([]bool, ops)
	var visit func(i int)
	visit = func(i int) {
		if live[i] || !wanted[i] {
			return
		}
		live[i] = true
		for _, of := range facts {
			for j, f := range of {
				for _, by := range f.when {
					if by == i {
						visit(j)
					}
				}
			}
		}
	}
	for _, of := range facts {
		for i, f := range of {
			wanted[i] = wanted[i] || f.wants
		}
	}
	for _, of := range facts {
		for i, f := range of {
			if f.yes {
				visit(i)
			}
		}
	}
	return live
}

func randomFacts(r *rand.Rand, ops, members int) [][]fact {
	all := make([][]fact, members)
	for m := range all {
		all[m] = make([]fact, ops)
		for i := range all[m] {
			f := &all[m][i]
			f.wants, f.yes = r.IntN(3) > 0, r.IntN(5) == 0
			for by := i + 1; by < ops && !f.yes; by++ {
				if r.IntN(ops) == 0 {
					f.when = append(f.when, by)
				}
			}
		}
	}
	return all
}

func TestWhatTakesPartIsWhatAnyLossReachesAndIsKnownAsSoonAsItCanBe(t *testing.T) {
	for i := range soak.Cases(2000) {
		r := rand.New(rand.NewPCG(6, uint64(i)))
		ops, members := 1+r.IntN(8), 1+r.IntN(4)
		facts := randomFacts(r, ops, members)
		want := reachedFrom(facts, ops)
		tb := newTable(ops, members)
		for _, m := range r.Perm(members) {
			_, ok := tb.decide()
			require.False(t, ok, "a member has said nothing")
			said, err := parseFacts(appendFacts(nil, facts[m]), ops)
			require.NoError(t, err)
			require.Equal(t, facts[m], said)
			for i := range said { // what another group decides is open at first
				if r.IntN(4) == 0 {
					said[i].open, said[i].yes = true, false
				}
			}
			tb.facts[m] = said
		}
		if live, ok := tb.decide(); ok {
			if !same(tb.facts, facts) { // whatever the other groups decide
				for range 20 {
					closed := closeOpen(r, tb.facts)
					require.Equal(t, live, reachedFrom(closed, ops), "case %d", i)
				}
			} else {
				require.Equal(t, want, live, "case %d", i)
			}
		} else {
			require.NotEqual(t, reachedFrom(all(tb.facts, false), ops), reachedFrom(all(tb.facts, true), ops), "case %d: nothing was open", i)
		}
		tb.facts = facts
		live, ok := tb.decide()
		require.True(t, ok)
		require.Equal(t, want, live, "case %d", i)
	}
}

func same(a, b [][]fact) bool {
	for m := range a {
		for i := range a[m] {
			if a[m][i].open != b[m][i].open {
				return false
			}
		}
	}
	return true
}

// closeOpen decides at random what is open.
func closeOpen(r *rand.Rand, facts [][]fact) [][]fact {
	out := all(facts, false)
	for m := range out {
		for i := range out[m] {
			if facts[m][i].open && r.IntN(2) == 0 {
				out[m][i].yes = true
			}
		}
	}
	return out
}

// all decides all that is open in one way.
func all(facts [][]fact, yes bool) [][]fact {
	out := make([][]fact, len(facts))
	for m := range facts {
		for _, f := range facts[m] {
			f.yes, f.open = f.yes || f.open && yes, false
			out[m] = append(out[m], f)
		}
	}
	return out
}

func TestFactsThatAreNoneAreRefused(t *testing.T) {
	good := appendFacts(nil, []fact{{wants: true}, {yes: true, when: []int{0}}})
	for n := range good {
		_, err := parseFacts(good[:n], 2)
		require.ErrorIs(t, err, ErrProtocol, "cut at %d", n)
	}
	for _, bad := range [][]byte{append(good, 0, 0), {0, 0, 0, 1, 2}, {0, 0, 0, 1, 0xff}, {0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}} {
		_, err := parseFacts(bad, 2)
		require.ErrorIs(t, err, ErrProtocol, "%v", bad)
	}
	_, err := parseFacts(nil, 1<<40) // allocates nothing
	require.ErrorIs(t, err, ErrProtocol)
}

func FuzzFacts(f *testing.F) {
	for i := range 8 {
		ops := 1 + i
		f.Add(appendFacts(nil, randomFacts(rand.New(rand.NewPCG(1, uint64(i))), ops, 1)[0]), ops)
	}
	f.Fuzz(func(t *testing.T, b []byte, ops int) {
		facts, err := parseFacts(b, min(max(ops, 0), 1<<16))
		if err != nil {
			require.ErrorIs(t, err, ErrProtocol)
			return
		}
		again, err := parseFacts(appendFacts(nil, facts), len(facts))
		require.NoError(t, err)
		require.Equal(t, facts, again)
		tb := newTable(len(facts), 1)
		if tb.facts[0] = facts; len(facts) < 100 {
			tb.decide()
		}
	})
}
