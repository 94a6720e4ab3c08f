package rdzv

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weft-project/weft/internal/printable"
)

// Change is what has become of a node or of a worker, for people on all nodes. Leaders tell the
// last ones in their bulletins, and count them anew.
type Change struct {
	_     struct{} `cbor:",toarray"`
	Nth   int      // of its leader's
	Round int      // that was gathering or complete then
	ID    string   // of the node
	What  string
}

// happened is a change, and when that was.
type happened struct {
	Change
	at time.Time
}

const (
	maxChanges = 4   // that are told at a time
	maxChange  = 160 // bytes of one
)

// note has people on all nodes know what has become of a node, and of those in the next round why
// it has formed.
func (d *decision) note(id, format string, args ...any) {
	what := printable.Text(fmt.Sprintf(format, args...), maxChange)
	d.counted++
	d.changes = append(slices.Clip(last(d.changes, maxChanges-1)), happened{Change{Nth: d.counted, Round: d.round, ID: id, What: what}, d.now})
	d.whys = append(slices.Clip(last(d.whys, maxChanges-1)), what)
}

func last[T any](all []T, n int) []T { return all[max(len(all)-n, 0):] }

// recent are the changes that are to be told now: each in two bulletins at least.
func (s *State) recent(now time.Time) (out []Change) {
	for _, h := range s.changes {
		if now.Sub(h.at) <= s.cfg.Silence/3 {
			out = append(out, h.Change)
		}
	}
	return out
}

// came says how a node comes: it returns if it was there before, or another agent at its address
// was, and nobody else is there now.
func (d *decision) came(n Node) string {
	alone := true
	for _, m := range d.members {
		alone = alone && m.Addr != n.Addr
	}
	for _, e := range slices.Backward(d.ended) {
		if e.end == WasDone || e.id != n.ID && (!alone || e.addr != n.Addr) {
			continue
		}
		who := e.id
		if who == n.ID {
			who = "it"
		}
		how := map[End]string{HasLeft: "left", WasLost: "was lost", GaveUp: "gave up waiting"}[e.end]
		return fmt.Sprintf("returns: %s %s %v ago", who, how, d.now.Sub(e.at).Round(time.Second))
	}
	return "joins"
}

// applyBulletin takes the changes of a bulletin that are news. What happened before this node first
// heard of the rendezvous, and what is its own, is none.
func (p *peer) applyBulletin(b bulletin) {
	if b.Term != p.counter {
		if p.counter == 0 && len(b.Changes) > 0 {
			p.counted = b.Changes[len(b.Changes)-1].Nth
		} else {
			p.counted = 0
		}
		p.counter = b.Term
	}
	for _, c := range b.Changes {
		if missed := c.Nth - p.counted - 1; missed > 0 && p.counted > 0 {
			p.changes = append(p.changes, Change{Round: c.Round, What: fmt.Sprintf("%d more nodes have come or gone", missed)})
		}
		if c.Nth > p.counted {
			p.counted = c.Nth
			if c.ID != p.node.ID {
				p.changes, p.whys = append(p.changes, c), append(slices.Clip(last(p.whys, maxChanges-1)), c)
			}
		}
	}
}

// why is why a round has formed, by what was heard since the last one: a leader that has just begun
// does not know.
func (p *peer) why() string {
	var out []string
	for _, c := range p.whys {
		if c.Round >= p.round {
			out = append(out, c.What)
		}
	}
	p.whys = nil
	return strings.Join(out, "; ")
}
