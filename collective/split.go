package collective

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"

	"github.com/weft-project/weft/collective/internal/ballot"
)

// seat is what a member says when a group is split.
type seat struct {
	Color, Key int
	Nonce      string
}

// Split makes smaller groups: of all members with one color, in the order of their keys and, where
// those are equal, of their ranks. All members call it; who gives a color below 0 gets no group.
// The groups live on when this one ends.
func (g *Group) Split(c context.Context, color, key int) (*Group, error) {
	sub, err := g.split(c, color, key)
	if err != nil {
		return nil, fmt.Errorf("collective: split group %q: %w", g.name, err)
	}
	return sub, nil
}

func (g *Group) split(c context.Context, color, key int) (*Group, error) {
	seats, err := Agree(c, g, seat{color, key, rand.Text()})
	if err != nil {
		return nil, err
	}
	if color < 0 {
		return nil, g.Barrier(c)
	}
	var ranks []int
	parts := []string{g.voting.lineage, fmt.Sprint(color)}
	for r, s := range seats {
		parts = append(parts, s.Nonce)
		if s.Color == color {
			ranks = append(ranks, r)
		}
	}
	slices.SortStableFunc(ranks, func(a, b int) int { return cmp.Compare(seats[a].Key, seats[b].Key) })
	var roll ballot.Roll
	var hosts []string
	for _, r := range ranks {
		roll.Members, hosts = append(roll.Members, g.members[r].who()), append(hosts, g.about[r].host)
	}
	lineage := digest(parts...)
	sub, err := found(g.w, fmt.Sprintf("%s/%d", g.name, color), "collective/"+lineage, lineage, roll)
	if err != nil {
		return nil, err
	}
	if err := g.Barrier(c); err != nil { // all have founded theirs when it is over
		_ = sub.Close() // it owns nothing, and tells those that have come further
		return nil, err
	}
	sub.meet(hosts)
	return sub, nil
}

// Hosts makes the two levels of a group that spans hosts. within is this member's host: its members
// by rank. across has one member of each host: those that have the same rank within theirs. Hosts
// are in the order of their first members. Where they hold different numbers, the groups across of
// the last members span only the hosts that have so many; compare the sizes where each has to span
// all. Members whose hosts have no name count as on one host. All members call it.
func (g *Group) Hosts(c context.Context) (within, across *Group, err error) {
	if err := g.whole(c); err != nil {
		return nil, nil, fmt.Errorf("collective: hosts of group %q: %w", g.name, err)
	}
	var hosts []string
	host, place := 0, 0
	counts := map[string]int{}
	for r, a := range g.about {
		if !slices.Contains(hosts, a.host) {
			hosts = append(hosts, a.host)
		}
		if r == g.rank {
			host, place = slices.Index(hosts, a.host), counts[a.host]
		}
		counts[a.host]++
	}
	if within, err = g.Split(c, host, 0); err != nil {
		return nil, nil, err
	}
	if across, err = g.Split(c, place, 0); err != nil {
		_ = within.Close() // it owns nothing
		return nil, nil, err
	}
	return within, across, nil
}
