package admission

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/soak"
)

// simpleGate is the dumb oracle of admission: one list of all that waits, searched anew for every
// decision.
type simpleGate struct {
	maxRunning, maxQueued int
	running               int
	waiting               []call // in the order of arrival
	served                []int  // peers that have a call waiting, the one served next first
}

type call struct{ peer, n int }

func (g *simpleGate) of(peer int) (calls []call) {
	for _, c := range g.waiting {
		if c.peer == peer {
			calls = append(calls, c)
		}
	}
	return calls
}

func (g *simpleGate) drop(c call) {
	g.waiting = slices.DeleteFunc(g.waiting, func(o call) bool { return o == c })
	if len(g.of(c.peer)) == 0 {
		g.served = slices.DeleteFunc(g.served, func(p int) bool { return p == c.peer })
	}
}

func (g *simpleGate) arrive(c call) (runs bool, refused call) {
	if g.running < g.maxRunning {
		g.running++
		return true, call{}
	}
	if len(g.waiting) == g.maxQueued {
		var loser []call
		for _, p := range g.served {
			if q := g.of(p); len(q) > len(loser) {
				loser = q
			}
		}
		if len(loser) <= len(g.of(c.peer))+1 {
			return false, c
		}
		refused = loser[len(loser)-1]
		g.drop(refused)
	}
	if len(g.of(c.peer)) == 0 {
		g.served = append(g.served, c.peer)
	}
	g.waiting = append(g.waiting, c)
	return false, refused
}

func (g *simpleGate) done() (next call) {
	if len(g.served) == 0 {
		g.running--
		return call{}
	}
	peer := g.served[0]
	next = g.of(peer)[0]
	g.drop(next)
	if len(g.of(peer)) > 0 {
		g.served = append(g.served[1:], peer)
	}
	return next
}

func TestAdmissionDecidesAsItsOracleDoes(t *testing.T) {
	for seed := range uint64(soak.Cases(600)) {
		r := rand.New(rand.NewPCG(seed, 1))
		running, queued := 1+r.IntN(4), r.IntN(8)
		a := queues[call]{maxRunning: running, maxQueued: queued}
		g := simpleGate{maxRunning: running, maxQueued: queued}
		live := 0
		for n := 1; n < 60; n++ {
			c := call{r.IntN(4) * r.IntN(2), n} // peer 0 floods
			switch k := r.IntN(5); {
			case k < 3:
				runs, refused := a.arrive(c.peer, c)
				wantRuns, want := g.arrive(c)
				require.Equal(t, wantRuns, runs, "seed %d, step %d", seed, n)
				require.Equal(t, want, refused, "seed %d, step %d", seed, n)
				if runs {
					live++
				}
			case k == 3 && live > 0:
				next, ok := a.done()
				want := g.done()
				require.Equal(t, want, next, "seed %d, step %d", seed, n)
				require.Equal(t, want != call{}, ok)
				if !ok {
					live--
				}
			case len(g.waiting) > 0:
				c := g.waiting[r.IntN(len(g.waiting))]
				g.drop(c)
				require.True(t, a.leave(c.peer, c))
				require.False(t, a.leave(c.peer, c))
			}
			require.Equal(t, len(g.waiting), a.queued)
			require.Equal(t, g.running, a.running)
			require.LessOrEqual(t, a.running, running)
			require.LessOrEqual(t, a.queued, queued)
			require.Len(t, a.turns, len(a.queues))
		}
	}
}

func TestPeersTakeTurnsHoweverManyCallsOneHasWaiting(t *testing.T) {
	a := queues[call]{maxRunning: 1, maxQueued: 100}
	for n := 1; n <= 50; n++ {
		a.arrive(0, call{0, n})
	}
	a.arrive(1, call{1, 1})
	a.arrive(2, call{2, 1})
	a.arrive(1, call{1, 2})
	var order []call
	for range 6 {
		next, ok := a.done()
		require.True(t, ok)
		order = append(order, next)
	}
	require.Equal(t, []call{{0, 2}, {1, 1}, {2, 1}, {0, 3}, {1, 2}, {0, 4}}, order)
}

func TestWhereAllPlacesAreTakenTheLongestQueueLosesItsYoungest(t *testing.T) {
	a := queues[call]{maxRunning: 1, maxQueued: 3}
	for n := range 4 {
		_, refused := a.arrive(0, call{0, n + 1})
		require.Zero(t, refused)
	}
	_, refused := a.arrive(0, call{0, 5})
	require.Equal(t, call{0, 5}, refused, "a flood hurts itself")
	_, refused = a.arrive(1, call{1, 1})
	require.Equal(t, call{0, 4}, refused)
	_, refused = a.arrive(1, call{1, 2})
	require.Equal(t, call{1, 2}, refused, "half of the places each is fair")
}
