package rdzv

import (
	"fmt"
	"slices"
	"time"
)

// End is how a node's part ended.
type End int

// A node leaves, is lost because of its silence, gives up waiting for a round, or is done before
// the others are.
const (
	HasLeft End = iota
	WasLost
	GaveUp
	WasDone
)

func (e End) String() string {
	if e < HasLeft || e > WasDone {
		return "unknown"
	}
	return [...]string{"left", "lost", "gave up", "done"}[e]
}

// maxEnded bounds what is kept of those whose part has ended.
const maxEnded = 64

// ended is a node whose part has ended.
type ended struct {
	id, addr string
	rank     int // in its last round, -1 if it had none
	end      End
	why      string
	at       time.Time
	heir     string // the node that has come from there since; "" if none has
}

// savedEnded is one as it is written.
type savedEnded struct {
	_    struct{} `cbor:",toarray"`
	ID   string
	Addr string
	Rank int
	End  End
	Why  string
	Ago  time.Duration
	Heir string
}

// part notes how a member's part ends. The oldest of too many are forgotten.
func (d *decision) part(m *member, end End, why string) {
	if len(d.ended) >= maxEnded {
		d.ended = slices.Clone(d.ended[len(d.ended)-maxEnded+1:])
	}
	d.ended = append(d.ended, ended{m.ID, m.Addr, m.rank, end, cut(why), d.now, ""})
}

// succeed takes it that a node which was gone is back: it has the same name, or is the first to
// come from that address since.
func (d *decision) succeed(n Node) {
	from := -1
	for i, e := range d.ended {
		same := n.Addr != "" && e.addr == n.Addr && (from < 0 || d.ended[from].id != n.ID)
		if e.heir == "" && e.end != WasDone && (e.id == n.ID || same) {
			from = i
		}
	}
	if from >= 0 {
		d.ended = slices.Clone(d.ended)
		d.ended[from].heir = n.ID
	}
}

func (s *State) saveEnded(now time.Time) []savedEnded {
	out := make([]savedEnded, len(s.ended))
	for i, e := range s.ended {
		out[i] = savedEnded{ID: e.id, Addr: e.addr, Rank: e.rank, End: e.end, Why: e.why, Ago: now.Sub(e.at), Heir: e.heir}
	}
	return out
}

func (s *State) restoreEnded(in []savedEnded, now time.Time) error {
	if len(in) > maxEnded {
		return fmt.Errorf("%d nodes have ended, at most %d are kept", len(in), maxEnded)
	}
	for _, e := range in {
		if !nameable(e.ID, maxID) || !nameable(e.Addr, maxAddr) || e.Rank < -1 || e.Rank >= maxNodes || e.End < HasLeft || e.End > WasDone ||
			len(e.Why) > maxText || e.Ago < 0 || !nameable(e.Heir, maxID) {
			return fmt.Errorf("the end of node %q cannot be", clip(e.ID))
		}
		s.ended = append(s.ended, ended{e.ID, e.Addr, e.Rank, e.End, cut(e.Why), now.Add(-e.Ago), e.Heir})
	}
	return nil
}
