package rpc

import (
	"context"
	"fmt"
	"sync"

	"github.com/fxamacker/cbor/v2"

	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/ctx/passgraph"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/transport"
)

// AskGraph asks a worker for its part of a pass's graph.
func (l passLinks) AskGraph(c context.Context, to ctx.WorkerID, pass ctx.PassID) (passgraph.Worker, error) {
	var part passgraph.Worker
	p := l.w.members.Seek(c, int(to))
	if p == nil {
		return part, fmt.Errorf("%w: rank %d", ErrUnknownWorker, to)
	}
	h, err := l.w.ask(c, p, wire.KindGraph, wire.GraphHeader{Pass: uint64(pass)})
	if err == nil {
		err = decodeGraph(h.Value, &part)
	}
	return part, l.w.wrap(p.Name, "graph", err)
}

// serveGraph answers with this worker's part.
func (w *Worker) serveGraph(s transport.Stream, m *transport.Message) error {
	var h wire.GraphHeader
	if err := wire.Decode(m.Header, &h); err != nil {
		return w.reply(s, &wire.ReplyHeader{}, nil, err)
	}
	part, err := w.passes.GraphPart(ctx.PassID(h.Pass))
	reply := &wire.ReplyHeader{}
	if err == nil {
		reply.Value, err = wire.Encode(part)
	}
	return w.reply(s, reply, nil, err)
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
