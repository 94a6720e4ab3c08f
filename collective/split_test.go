package collective

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/rpctest"
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

func TestHostsAreTheTwoLevelsAlsoWhereTheyHoldDifferentNumbers(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 5)
	gs := groups(t, ws, "g")
	for _, g := range gs { // a, b, a, b, a: as if they were on two hosts
		for r := range g.about {
			g.about[r].host = []string{"a", "b"}[r%2]
		}
	}
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
