package rpc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/rpc/internal/membership"
	"github.com/weft-project/weft/rpc/internal/refs"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/transport"
)

// PeerChange is what has become of a worker, as another sees it.
type PeerChange uint8

// The changes. A worker that comes back after PeerWasLost or PeerHasLeft joins anew.
const (
	PeerJoined  PeerChange = iota + 1
	PeerLinked             // there is a link with it; most links are made when they are first needed
	PeerLeaving            // it has announced that it leaves, and still serves
	PeerHasLeft
	PeerWasLost
)

// String is a word for logs.
func (p PeerChange) String() string {
	if p < PeerJoined || p > PeerWasLost {
		return fmt.Sprintf("PeerChange(%d)", uint8(p))
	}
	return [...]string{"joined", "linked", "leaving", "left", "lost"}[p-PeerJoined]
}

// PeerEvent tells a watcher of a change.
type PeerEvent struct {
	WorkerInfo
	Change PeerChange
	Cause  error // matches ErrPeerLost or ErrPeerLeft where the worker is gone
	// Missed is how many events before this one were dropped because the watcher was too slow.
	// Worker.Workers says who is there.
	Missed int
}

// Peers tells who comes and goes, until c or this worker ends; then the channel is closed. First
// come the workers that are there, by rank, as joined. The queue of a watcher that does not keep up
// is bounded: the oldest events are dropped, and the next says how many.
func (w *Worker) Peers(c context.Context) <-chan PeerEvent {
	return membership.Subscribe(c, w.members, func(x membership.Change) PeerEvent {
		return PeerEvent{WorkerInfo: infoOf(x.Who), Change: PeerChange(x.State), Cause: x.Cause, Missed: x.Missed}
	})
}

func infoOf(p *membership.Peer) WorkerInfo { return WorkerInfo{p.Name, p.Rank, p.Node.Epoch} }

// memberShell does for a worker's members what only the worker can.
type memberShell struct{ w *Worker }

func (s memberShell) Met(p *membership.Peer) { s.w.refs.meet(p.Node) }

// Ended ends what depends on a life that is over.
func (s memberShell) Ended(p *membership.Peer) {
	s.w.refs.do(func(m *refs.Machine, now time.Time) { m.Lose(now, p.Node) })
	s.w.passes.PeerLost(ctx.WorkerID(p.Rank), p.Lost())
}

// Serve has a stream answered. A post that has arrived is delivered at once: its receiver does not
// wait, and each goroutine that a message goes through costs a wake.
func (s memberShell) Serve(p *membership.Peer, st transport.Stream, kind uint8, whole bool) {
	if whole && kind == wire.KindPost {
		s.w.serving.serveStream(p, st)
		return
	}
	s.w.calls.pool.Do(func() { s.w.serving.serveStream(p, st) })
}

func (s memberShell) Reply(st transport.Stream, value []byte, err error) error {
	return s.w.serving.reply(st, &wire.ReplyHeader{Value: value}, nil, err)
}

func (s memberShell) Observed(link transport.Link, st transport.Stream, m *transport.Message) error {
	return s.w.serving.observed(link, st, m)
}

// AskOn exchanges a message on a link that is not in use yet.
func (s memberShell) AskOn(c context.Context, link transport.Link, kind uint8, h any) (value []byte, err error) {
	header, err := wire.Encode(h)
	if err != nil {
		return nil, err
	}
	reply, err := exchange(c, link, &transport.Message{Kind: kind, Header: header}, nil)
	if err != nil {
		return nil, ctx.AsTimeout(err)
	}
	defer reply.Release()
	var rh wire.ReplyHeader
	err = s.w.calls.parseReply(reply, &rh)
	return rh.Value, err
}

func (s memberShell) Tell(c context.Context, p *membership.Peer, news wire.NewsHeader) (refused bool, err error) {
	_, err = s.w.calls.ask(c, p, wire.KindNews, news)
	var there *RemoteError
	return errors.As(err, &there), err
}

// LanesVariable names the lanes that links may use where Config.Lanes does not, separated by
// commas; weft run --lanes sets it.
const LanesVariable = "WEFT_LANES"

// lendCopiesVariable is 1 where workers are to lend copies, though Config.LendCopies does not say
// so.
const lendCopiesVariable = "WEFT_LEND_COPIES"

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
	for _, at := range linked(w) {
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
func linked(w *Worker) []linkedPeer {
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

// lanesOf asks a link. What is small travels on the best lane that is up and has a place for it.
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
		if l.Calls == "" && !transport.TensorsAlone(s.Name) {
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
	text := os.Getenv(lendCopiesVariable)
	if text == "" || p.LendCopies || p.Network != nil {
		return nil
	}
	var err error
	if p.LendCopies, err = strconv.ParseBool(text); err != nil {
		return fmt.Errorf("$%s is %q; expected 1 or 0", lendCopiesVariable, text)
	}
	return nil
}
