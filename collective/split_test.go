package collective

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/internal/soak"
)

func TestASplitGathersColorsInTheOrderOfKeysAndThenOfRanks(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 5)
	gs := groups(t, ws, "g")
	for range 2 { // the same split twice gives two sets of groups
		subs := make([]*Group, 5)
		each(t, gs, func(r int) (err error) {
			subs[r], err = gs[r].Split(t.Context(), []int{0, 7, -1, 0, 0}[r], []int{5, 0, 0, -3, -3}[r])
			return err
		})
		closed(t, subs)
		require.Nil(t, subs[2])
		sums(t, []*Group{subs[3], subs[4], subs[0]}, 3, 4, 0)
		sums(t, subs[1:2], 1)
		require.Equal(t, "g/7", subs[1].Name())
		require.Zero(t, subs[1].Generation())
	}
}

// areOn has members be on hosts, by rank.
func areOn(gs []*Group, hosts ...string) {
	for _, g := range gs {
		for r := range g.about {
			g.about[r].host = hosts[r]
		}
	}
}

// The dumb definition goes over all pairs of members.
func TestHostsOfAnyNumberAreTheTwoLevels(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 9)
	gs := groups(t, ws, "g")
	for seed := range uint64(soak.Cases(4)) {
		r, hosts := rnd(seed), make([]string, len(gs))
		for i := range hosts {
			hosts[i] = []string{"", "a", "b", "c", "d", "e", "f"}[r.IntN(5+int(seed%3))]
		}
		hosts[0], hosts[4], hosts[5], hosts[8] = "w", "x", "y", "z" // four at least
		areOn(gs, hosts...)
		within, across := make([]*Group, len(gs)), make([]*Group, len(gs))
		each(t, gs, func(r int) (err error) {
			within[r], across[r], err = gs[r].Hosts(t.Context())
			return err
		})
		place := func(rank int) (n int) { // within its host
			for r := range rank {
				if hosts[r] == hosts[rank] {
					n++
				}
			}
			return n
		}
		for rank := range gs {
			var with, over []string
			for r := range gs {
				if hosts[r] == hosts[rank] {
					with = append(with, ws[r].Name())
				}
				if place(r) == place(rank) {
					over = append(over, ws[r].Name())
				}
			}
			require.Equal(t, with, workers(within[rank]), "%q, rank %d", hosts, rank)
			require.Equal(t, over, workers(across[rank]), "%q, rank %d", hosts, rank)
		}
		each(t, gs, func(r int) error { // both can be used
			return errors.Join(within[r].Barrier(t.Context()), across[r].Barrier(t.Context()))
		})
		each(t, gs, func(r int) error { return errors.Join(within[r].Close(), across[r].Close()) })
	}
}

func workers(g *Group) (all []string) {
	for _, m := range g.Members() {
		all = append(all, m.Worker)
	}
	return all
}

func TestHostsAreTheTwoLevelsAlsoWhereTheyHoldDifferentNumbers(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 5)
	gs := groups(t, ws, "g")
	areOn(gs, "a", "b", "a", "b", "a")
	within, across := make([]*Group, 5), make([]*Group, 5)
	each(t, gs, func(r int) (err error) {
		within[r], across[r], err = gs[r].Hosts(t.Context())
		return err
	})
	closed(t, append(within, across...))
	sums(t, []*Group{within[0], within[2], within[4]}, 0, 2, 4)
	sums(t, []*Group{within[1], within[3]}, 1, 3)
	sums(t, across[:2], 0, 1)
	sums(t, across[2:4], 2, 3)
	sums(t, across[4:], 4)
	require.NoError(t, ws[2].Close())
	for _, g := range []*Group{within[0], within[4], across[3]} {
		<-g.Done()
		require.ErrorIs(t, g.Err(), ErrLost, fmt.Sprint(g.Members()))
	}
	require.NoError(t, across[1].Err(), "it has lost nobody")
	sums(t, without(t, []*Group{within[0], within[4]}), 0, 4)
}
