package rpc

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/weft-project/weft/transport"
)

// LanesVariable names the lanes that links may use where Config.Lanes does not, separated by
// commas; weft run --lanes sets it.
const LanesVariable = "WEFT_LANES"

// LendCopiesVariable is 1 where workers are to lend copies, though Config.LendCopies does not say
// so.
const LendCopiesVariable = "WEFT_LEND_COPIES"

// PeerLanes says how messages travel between this worker and a peer.
type PeerLanes struct {
	Peer    string
	Calls   string                // the lane of calls and small tensors; empty while there is no link
	Tensors string                // the lane of large tensors of the host; those of a GPU that both ends use go by transport.LaneCUDA
	Lanes   []transport.LaneState // all, in order of preference, with why those that are not used are not, and their bytes
}

// Lanes says how messages travel to each of the other workers, by rank. This worker is among them
// once it has called itself.
func (w *Worker) Lanes() []PeerLanes {
	var all []PeerLanes
	for _, at := range w.linked() {
		all = append(all, lanesOf(at.name, at.link))
	}
	return all
}

// linkedPeer is a peer as it was when somebody looked.
type linkedPeer struct {
	name string
	link transport.Link // nil: none
}

// linked lists the peers and their links; this worker only where it has a link to itself.
func (w *Worker) linked() []linkedPeer {
	var all []linkedPeer
	for _, p := range w.members.All() {
		if p.Rank == w.rank && p.Link == nil {
			continue
		}
		link := p.Link
		if p.Gone != nil {
			link = nil
		}
		all = append(all, linkedPeer{p.Name, link})
	}
	return all
}

// lanesOf asks a link. What is small travels on the best lane that is up, but lane bulk, which has
// no place for it.
func lanesOf(peer string, link transport.Link) PeerLanes {
	l := PeerLanes{Peer: peer}
	if link == nil {
		return l
	}
	l.Lanes = link.Lanes()
	for _, s := range l.Lanes {
		if s.Why != "" || s.Name == transport.LaneCUDA {
			continue
		}
		if l.Tensors == "" {
			l.Tensors = s.Name
		}
		if l.Calls == "" && s.Name != transport.LaneBulk {
			l.Calls = s.Name
		}
	}
	return l
}

// ParseLanes reads a list of lanes as LanesVariable has it; an empty one is nil, for all lanes.
func ParseLanes(list string) ([]string, error) {
	if strings.TrimSpace(list) == "" {
		return nil, nil
	}
	var lanes []string
	for name := range strings.SplitSeq(list, ",") {
		lanes = append(lanes, strings.TrimSpace(name))
	}
	return lanes, transport.CheckLanes(lanes)
}

// allowLanes fills in the lanes, and checks them.
func (p *prepared) allowLanes() (err error) {
	if p.Lanes != nil || p.Network != nil {
		if err := transport.CheckLanes(p.Lanes); err != nil {
			return fmt.Errorf("Config.Lanes: %w", err)
		}
		return nil
	}
	if p.Lanes, err = ParseLanes(os.Getenv(LanesVariable)); err != nil {
		return fmt.Errorf("$%s: %w", LanesVariable, err)
	}
	return nil
}

// lendCopies fills in whether copies are lent.
func (p *prepared) lendCopies() error {
	text := os.Getenv(LendCopiesVariable)
	if text == "" || p.LendCopies || p.Network != nil {
		return nil
	}
	var err error
	if p.LendCopies, err = strconv.ParseBool(text); err != nil {
		return fmt.Errorf("$%s is %q; expected 1 or 0", LendCopiesVariable, text)
	}
	return nil
}
