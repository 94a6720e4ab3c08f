package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/rpc/internal/membership"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/transport"
)

// exchange sends one message on a stream of its own and reads the answer, whose tensors become the
// caller's. When c ends the stream is reset, which cancels the work at the peer.
func exchange(c context.Context, link transport.Link, m *transport.Message, place transport.Place) (*transport.Message, error) {
	s, err := link.Open(c)
	if err != nil {
		return nil, err
	}
	reply, err := converse(c, s, m, place)
	if cause := context.Cause(c); err != nil && cause != nil {
		finish(c, s, reasonOf(cause))
	} else if err != nil || !reply.End {
		finish(c, s, err)
	}
	return reply, err
}

// finish ends a stream on which this side has sent all: by resetting it where something failed,
// which cancels the work at the peer; otherwise when the peer has said that it has sent all, too.
func finish(c context.Context, s transport.Stream, err error) {
	if err == nil {
		if _, end := s.Recv(c, wire.NoTensors); end != io.EOF { // a lost link may wrap it
			err = fmt.Errorf("%w: more than one answer: %w", ErrProtocol, end)
		}
	}
	s.Reset(err) // with nil only the stream's resources go
}

// converse sends a request, which is all that this side has to say, and receives the answer.
func converse(c context.Context, s transport.Stream, m *transport.Message, place transport.Place) (*transport.Message, error) {
	m.End = true
	if err := s.Send(c, m); err != nil {
		if errors.Is(err, transport.ErrFrame) && m.Kind == wire.KindCall && !ended(err) {
			err = fmt.Errorf("%w: they are beyond the limits that both ends must raise in the transport of Config.Network: %w", ErrArguments, err)
		}
		return nil, err
	}
	reply, err := s.Recv(c, place)
	if err == io.EOF { // a lost link may wrap it
		return nil, fmt.Errorf("%w: the peer ended the stream without an answer", ErrProtocol)
	}
	if err != nil {
		return nil, err
	}
	if reply.Kind != wire.KindReply {
		reply.Release()
		return nil, fmt.Errorf("%w: kind %d where an answer is expected", ErrProtocol, reply.Kind)
	}
	return reply, nil
}

// parseReply reads an answer's header; the error may be what the peer answered with.
func (cs *calling) parseReply(m *transport.Message, h *wire.ReplyHeader) error {
	if err := h.Parse(m.Header); err != nil {
		return err
	}
	if h.Err != nil {
		return cs.errors.fromWire(h.Err)
	}
	return nil
}

// ask exchanges a message without tensors.
func (cs *calling) ask(c context.Context, p *membership.Peer, kind uint8, header any) (*wire.ReplyHeader, error) {
	return cs.askWith(c, p, &transport.Message{Kind: kind}, header)
}

// askWith exchanges a message whose answer carries no tensors.
func (cs *calling) askWith(c context.Context, p *membership.Peer, m *transport.Message, header any) (*wire.ReplyHeader, error) {
	var err error
	if m.Header, err = wire.Encode(header); err != nil {
		return nil, err
	}
	link, err := p.Connection(c)
	if err != nil {
		return nil, err
	}
	reply, err := exchange(c, link, m, wire.NoTensors)
	if err != nil {
		return nil, p.Explain(c, err)
	}
	h := &wire.ReplyHeader{}
	return h, cs.parseReply(reply, h)
}

// bufferOn gives arriving tensors their buffers, on the device that the sender's map named.
func (w *Worker) bufferOn(id device.ID, bytes int) (*device.Buffer, error) {
	d, err := w.devices.Get(id)
	if err != nil {
		return nil, err
	}
	return d.Alloc(bytes)
}
