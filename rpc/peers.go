package rpc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-project/weft/ctx"
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
	return subscribe(w.members, c, func(x change) PeerEvent {
		return PeerEvent{WorkerInfo: infoOf(x.who), Change: PeerChange(x.state), Cause: x.cause, Missed: x.missed}
	})
}

func infoOf(p *peer) WorkerInfo { return WorkerInfo{p.name, p.rank, p.node.Epoch} }

// memberShell does for a worker's members what only the worker can.
type memberShell struct{ w *Worker }

func (s memberShell) met(p *peer) { s.w.refs.meet(p.node) }

// ended ends what depends on a life that is over.
func (s memberShell) ended(p *peer) {
	s.w.refs.do(func(m *refs.Machine, now time.Time) { m.Lose(now, p.node) })
	s.w.passes.PeerLost(ctx.WorkerID(p.rank), p.lost())
}

func (s memberShell) serve(p *peer, st transport.Stream) {
	s.w.calls.pool.Do(func() { s.w.serveStream(p, st) })
}

func (s memberShell) reply(st transport.Stream, value []byte, err error) error {
	return s.w.reply(st, &wire.ReplyHeader{Value: value}, nil, err)
}

func (s memberShell) observed(link transport.Link, st transport.Stream, m *transport.Message) error {
	return s.w.observed(link, st, m)
}

// askOn exchanges a message on a link that is not in use yet.
func (s memberShell) askOn(c context.Context, link transport.Link, kind uint8, h any) (value []byte, err error) {
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

func (s memberShell) tell(c context.Context, p *peer, news wire.NewsHeader) (refused bool, err error) {
	_, err = s.w.ask(c, p, wire.KindNews, news)
	var there *RemoteError
	return errors.As(err, &there), err
}
