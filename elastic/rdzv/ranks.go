package rdzv

import (
	"cmp"
	"slices"
)

// assign gives the nodes of the round their ranks and places, and returns them in the order of
// their ranks.
//
// Who was in the last round keeps its rank if it is less than the number of nodes. Of the others
// each gets the rank that it asks for, if that is free; then those who come get the lowest free
// ones, in the order of their arrival, and last those whose rank was too high. The workers' ranks
// follow the nodes', and so do the ranks in each role.
func (s *State) assign() []*member {
	all := s.sorted(participating)
	ranked := make([]*member, len(all))
	s.source = -1
	var fresh, displaced []*member
	for _, m := range all {
		m.stayed = m.rank >= 0
		switch {
		case !m.stayed:
			fresh = append(fresh, m)
		case m.rank >= len(all) || ranked[m.rank] != nil: // two of one rank come from different rounds
			displaced = append(displaced, m)
		default:
			ranked[m.rank] = m
		}
	}
	slices.SortFunc(displaced, func(a, b *member) int { return cmp.Compare(a.rank, b.rank) })
	fresh = slices.DeleteFunc(fresh, func(m *member) bool {
		want := m.Want - 1
		if want < 0 || want >= len(ranked) || ranked[want] != nil {
			return false
		}
		ranked[want] = m
		return true
	})
	rest := append(fresh, displaced...)
	for rank := range ranked {
		if ranked[rank] == nil {
			ranked[rank], rest = rest[0], rest[1:]
		}
		if ranked[rank].rank = rank; ranked[rank].stayed && s.source < 0 {
			s.source = rank
		}
	}
	s.assignRanks(ranked, s.source)
	return ranked
}

// assignRanks works out the places of nodes that have their ranks.
func (s *State) assignRanks(ranked []*member, source int) {
	world, roles := 0, map[string]int{}
	for _, m := range ranked {
		m.place = Placement{
			Round: s.round, Epoch: s.epoch, Rank: m.rank, Nodes: len(ranked), First: world, RoleFirst: roles[m.Role],
			Slots: m.Slots, MasterAddr: ranked[0].Addr, Stayed: m.stayed, Source: source,
			Restart: s.cfg.Policy == RestartGroup, Restarts: s.restarts, MaxRestarts: s.cfg.MaxRestarts,
		}
		world += m.Slots
		roles[m.Role] += m.Slots
	}
	for _, m := range ranked {
		m.place.World, m.place.RoleWorld = world, roles[m.Role]
		if source >= 0 {
			m.place.SourceFirst = ranked[source].place.First
		}
	}
}
