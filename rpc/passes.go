package rpc

import (
	"context"
	"fmt"
	"sync"

	"github.com/fxamacker/cbor/v2"

	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/ctx/passgraph"
	"github.com/weft-project/weft/rpc/internal/membership"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/transport"
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
	_, err = l.w.calls.ask(c, p, wire.KindAbort, wire.AbortHeader{Failure: *f, Err: l.w.calls.errors.toWire(f.Worker, f.Unwrap())})
	return l.w.wrap(p.Name, "news of a failure", err)
}

func (l passLinks) SendCleanup(c context.Context, to ctx.WorkerID, pass ctx.PassID) error {
	p, err := l.peer(to)
	if err != nil {
		return err
	}
	_, err = l.w.calls.ask(c, p, wire.KindCleanup, wire.CleanupHeader{Pass: uint64(pass)})
	return l.w.wrap(p.Name, "clean-up", err)
}

func (l passLinks) SendRenew(c context.Context, to ctx.WorkerID, passes []ctx.PassID) (left []ctx.PassID, err error) {
	p, err := l.peer(to)
	if err != nil {
		return nil, err
	}
	reply, err := l.w.calls.ask(c, p, wire.KindRenew, wire.RenewHeader{Passes: passes})
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

// AskGraph asks a worker for its part of a pass's graph.
func (l passLinks) AskGraph(c context.Context, to ctx.WorkerID, pass ctx.PassID) (passgraph.Worker, error) {
	var part passgraph.Worker
	p := l.w.members.Seek(c, int(to))
	if p == nil {
		return part, fmt.Errorf("%w: rank %d", ErrUnknownWorker, to)
	}
	h, err := l.w.calls.ask(c, p, wire.KindGraph, wire.GraphHeader{Pass: uint64(pass)})
	if err == nil {
		err = decodeGraph(h.Value, &part)
	}
	return part, l.w.wrap(p.Name, "graph", err)
}

// serveGraph answers with this worker's part.
func (sv *serving) serveGraph(s transport.Stream, m *transport.Message) error {
	w := sv.w
	var h wire.GraphHeader
	if err := wire.Decode(m.Header, &h); err != nil {
		return sv.reply(s, &wire.ReplyHeader{}, nil, err)
	}
	part, err := w.passes.GraphPart(ctx.PassID(h.Pass))
	reply := &wire.ReplyHeader{}
	if err == nil {
		reply.Value, err = wire.Encode(part)
	}
	return sv.reply(s, reply, nil, err)
}

// graphMode is for parts, whose lists are shorter than those of other messages.
var graphMode = sync.OnceValue(func() cbor.DecMode {
	return wire.Decoding(cbor.DecOptions{MaxNestedLevels: 8, MaxArrayElements: passgraph.MaxLinks, MaxMapPairs: 64, UTF8: cbor.UTF8DecodeInvalid})
})

// decodeGraph reads a part; ctx checks what it says.
func decodeGraph(b []byte, into *passgraph.Worker) error {
	if err := graphMode().Unmarshal(b, into); err != nil {
		return fmt.Errorf("%w: a part of a pass's graph: %w", ErrProtocol, err)
	}
	return nil
}
