package refs

import (
	"cmp"
	"slices"
)

// Stats counts what a machine keeps.
type Stats struct {
	Owned           int // values kept here
	Forks           int // shares that workers, this one included, hold in them
	Held            int // shares of this worker in values, here or elsewhere
	PendingUsers    int // of these, not confirmed by the owner yet
	PendingChildren int // shares given to others that are not settled
	Waiting         int // control messages that are not answered
}

// Stats says what the machine keeps now. It takes time in proportion to that.
func (m *Machine) Stats() Stats {
	s := Stats{Owned: len(m.values), Held: len(m.holds)}
	for _, v := range m.values {
		s.Forks += v.count
	}
	for _, h := range m.holds {
		if h.state == creating || h.state == asking {
			s.PendingUsers++
		}
		s.PendingChildren += h.children
	}
	for _, p := range m.peers {
		s.Waiting += len(p.out.queue)
		for _, msgs := range p.out.flying {
			s.Waiting += len(msgs)
		}
	}
	return s
}

// Holding is a share in a value and who has it.
type Holding struct {
	ID     ID
	Holder Node
}

// Holdings lists what other workers hold of this one's values, and what this one holds of others',
// in order.
func (m *Machine) Holdings() (theirs, mine []Holding) {
	for n, p := range m.peers {
		if n == m.me {
			continue
		}
		for _, id := range p.counted {
			theirs = append(theirs, Holding{id, n})
		}
		for _, c := range p.given {
			if c.hold == 0 {
				theirs = append(theirs, Holding{c.id, n})
			}
		}
	}
	for _, h := range m.holds {
		if h.id.Owner != m.me {
			mine = append(mine, Holding{h.id, m.me})
		}
	}
	slices.SortFunc(theirs, compare)
	slices.SortFunc(mine, compare)
	return theirs, mine
}

func compare(a, b Holding) int {
	return cmp.Or(a.ID.Owner.compare(b.ID.Owner), a.ID.By.compare(b.ID.By), cmp.Compare(a.ID.N, b.ID.N), a.Holder.compare(b.Holder))
}
