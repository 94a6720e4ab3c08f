package cudaipc

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnArenaGivesNoByteTwiceAndEndsWhole(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const units = 64
	for range 200 {
		a := newArena(units*arenaUnit + 17)
		var used [units]bool
		var held []gap
		for range 300 {
			if len(held) > 0 && r.IntN(2) == 0 {
				k := r.IntN(len(held))
				g := held[k]
				held = slices.Delete(held, k, k+1)
				a.give(g.at, g.n)
				for u := g.at / arenaUnit; u < (g.at+g.n+arenaUnit-1)/arenaUnit; u++ {
					used[u] = false
				}
				continue
			}
			n := 1 + r.IntN(12*arenaUnit)
			at, ok := a.take(n)
			need, run, most := rounded(n)/arenaUnit, 0, 0
			for _, u := range used {
				if run++; u {
					run = 0
				}
				most = max(most, run)
			}
			require.Equal(t, most >= need, ok, "a place of %d units where the largest has %d", need, most)
			if !ok {
				continue
			}
			require.Zero(t, at%arenaUnit)
			for u := at / arenaUnit; u < at/arenaUnit+need; u++ {
				require.False(t, used[u])
				used[u] = true
			}
			held = append(held, gap{at, n})
		}
		for _, g := range held {
			a.give(g.at, g.n)
		}
		require.Equal(t, []gap{{0, units * arenaUnit}}, a.free)
	}
}
