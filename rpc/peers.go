package rpc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/rpc/internal/membership"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/rpc/refs"
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

// ended ends what depends on a life that is over.
func (s memberShell) Ended(p *membership.Peer) {
	s.w.refs.do(func(m *refs.Machine, now time.Time) { m.Lose(now, p.Node) })
	s.w.passes.PeerLost(ctx.WorkerID(p.Rank), p.Lost())
}

func (s memberShell) Serve(p *membership.Peer, st transport.Stream) {
	s.w.calls.pool.Do(func() { s.w.serveStream(p, st) })
}

func (s memberShell) Reply(st transport.Stream, value []byte, err error) error {
	return s.w.reply(st, &wire.ReplyHeader{Value: value}, nil, err)
}

func (s memberShell) Observed(link transport.Link, st transport.Stream, m *transport.Message) error {
	return s.w.observed(link, st, m)
}

// askOn exchanges a message on a link that is not in use yet.
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
	err = s.w.parseReply(reply, &rh)
	return rh.Value, err
}

func (s memberShell) Tell(c context.Context, p *membership.Peer, news wire.NewsHeader) (refused bool, err error) {
	_, err = s.w.ask(c, p, wire.KindNews, news)
	var there *RemoteError
	return errors.As(err, &there), err
}
