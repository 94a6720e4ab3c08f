package rpc

import (
	"context"
	"fmt"

	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/rpc/internal/membership"
	"github.com/weft-project/weft/rpc/internal/wire"
)

// passLinks carries the messages of passes over a worker's links.
type passLinks struct{ w *Worker }

var _ ctx.Links = passLinks{}

func (l passLinks) Name(id ctx.WorkerID) string { return l.w.members.NameOf(int(id)) }

func (l passLinks) peer(id ctx.WorkerID) (*membership.Peer, error) {
	if p := l.w.members.PeerAt(int(id)); p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("%w: rank %d", ErrUnknownWorker, id)
}

func (l passLinks) SendAbort(c context.Context, to ctx.WorkerID, f *ctx.Failure) error {
	p, err := l.peer(to)
	if err != nil {
		return err
	}
	_, err = l.w.ask(c, p, wire.KindAbort, wire.AbortHeader{Failure: *f, Err: l.w.calls.errors.toWire(f.Worker, f.Unwrap())})
	return l.w.wrap(p.Name, "news of a failure", err)
}

func (l passLinks) SendCleanup(c context.Context, to ctx.WorkerID, pass ctx.PassID) error {
	p, err := l.peer(to)
	if err != nil {
		return err
	}
	_, err = l.w.ask(c, p, wire.KindCleanup, wire.CleanupHeader{Pass: uint64(pass)})
	return l.w.wrap(p.Name, "clean-up", err)
}

func (l passLinks) SendRenew(c context.Context, to ctx.WorkerID, passes []ctx.PassID) (left []ctx.PassID, err error) {
	p, err := l.peer(to)
	if err != nil {
		return nil, err
	}
	reply, err := l.w.ask(c, p, wire.KindRenew, wire.RenewHeader{Passes: passes})
	if err == nil {
		err = wire.Decode(reply.Value, &left)
	}
	return left, l.w.wrap(p.Name, "renewal of passes", err)
}

// firstID is where the ids of passes begin in a life, so that they do not meet those of the life
// before at the same rank.
func firstID(incarnation uint64) uint64 { return incarnation >> 32 & 0xffff << 32 }

// ofLife says whether a pass can have been opened in that life. Many more ids than fit between two
// lives may have been drawn in it.
func ofLife(id, incarnation uint64) bool { return (id-firstID(incarnation))>>32&0xffff < 1<<12 }
