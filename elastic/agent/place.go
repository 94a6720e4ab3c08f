package agent

import (
	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/elastic/rdzv"
)

// epochs is the number of the workers' epoch: that of their place, and a later one where the leader
// says that workers were replaced in that place's round. What it says of a round in which this node
// has no place yet counts when it has one.
type epochs struct {
	place  *rdzv.Placement
	latest rdzv.Summary
	now    int
}

// placed takes a place.
func (e *epochs) placed(p rdzv.Placement) {
	e.place, e.now = &p, max(e.now, p.Epoch)
	e.heard(e.latest)
}

// heard takes how things stand, and says whether that is another epoch. The end of a job is none:
// nobody has another place.
func (e *epochs) heard(s rdzv.Summary) (another bool) {
	e.latest = s
	if e.place == nil || s.Round != e.place.Round || s.Phase != rdzv.Complete || s.Epoch <= e.now {
		return false
	}
	e.now = s.Epoch
	return true
}

// placeOf is the place of a node's worker in a round.
func placeOf(p rdzv.Placement, epoch, localRank int, master, addr string) elastic.Place {
	source := p.Source
	if source >= 0 {
		source = p.SourceFirst
	}
	return elastic.Place{
		Rank: p.First + localRank, World: p.World, LocalRank: localRank, LocalWorld: p.Slots, NodeRank: p.Rank, Nodes: p.Nodes,
		Round: p.Round, Epoch: max(epoch, p.Epoch), Source: source, Restarts: p.Restarts, Store: master, Addr: addr,
	}
}
