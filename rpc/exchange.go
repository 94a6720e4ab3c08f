package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

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

// Post sends a message to a service of another worker (see [OnPost]), and does not learn what
// becomes of it. It borrows the tensors, as [transport.Stream] does. Posts may overtake one
// another. It is for packages above this one that have protocols of their own.
func Post(c context.Context, w *Worker, to, service string, header []byte, tensors ...transport.Tensor) error {
	if len(service) > maxService {
		return w.wrap(to, "post", fmt.Errorf("%w: a service's name of %d bytes; expected %d at most", ErrArguments, len(service), maxService))
	}
	if err := w.countWork(); err != nil {
		return w.wrap(to, "post", err)
	}
	defer w.load.Finish()
	p, err := w.members.Lookup(c, to)
	if err != nil {
		return w.wrap(to, "post", err)
	}
	link, err := p.Connection(c)
	if err != nil {
		return w.wrap(to, "post", err)
	}
	s, err := link.Open(c)
	if err != nil {
		return w.wrap(to, "post", p.Explain(c, err))
	}
	box, _ := w.posts.heads.Get().(*[]byte)
	if box == nil {
		box = new([]byte)
	}
	defer w.posts.heads.Put(box)
	// The service comes last, so that the header is aligned where it arrives.
	*box = append(append(append((*box)[:0], header...), service...), byte(len(service)))
	err = s.Send(c, &transport.Message{Kind: wire.KindPost, Header: *box, Tensors: tensors, End: true})
	s.Reset(err) // with nil only the stream's resources go; what was sent arrives
	if err != nil {
		return w.wrap(to, "post", p.Explain(c, err))
	}
	return nil
}

// CompareSet puts a value into the job's store where it has the expected one, nil for none, and
// gives the value that it has then; see [store.Store]. Keys are apart from those of this package.
// It is for packages above this one that have to agree, whoever can reach whom.
func CompareSet(c context.Context, w *Worker, key string, expected, desired []byte) ([]byte, error) {
	if err := w.countWork(); err != nil {
		return nil, w.wrap("", "compare and set", err)
	}
	defer w.load.Finish()
	now, err := w.members.Registry.Store.CompareSet(c, "weft/"+key, expected, desired)
	return now, w.wrap("", "compare and set", err)
}

// maxService bounds a service's name, in bytes.
const maxService = 255

// OnPost gives the posts of other workers to a service of this one to fn, until stop is called. fn
// owns the header, which begins at a multiple of 8, and the tensors' buffers. It must not wait; it
// is called by several goroutines at once. Posts to a service that is not there are dropped.
func OnPost(w *Worker, service string, fn func(from WorkerInfo, header []byte, tensors []transport.Tensor)) (stop func(), err error) {
	w.posts.mu.Lock()
	defer w.posts.mu.Unlock()
	if w.posts.services[service] != nil {
		return nil, w.wrap("", "serve posts", fmt.Errorf("%w: the service %q is there already", ErrArguments, service))
	}
	if w.posts.services == nil {
		w.posts.services = map[string]postHandler{}
	}
	w.posts.services[service] = fn
	return func() {
		w.posts.mu.Lock()
		defer w.posts.mu.Unlock()
		delete(w.posts.services, service)
	}, nil
}

type postHandler func(from WorkerInfo, header []byte, tensors []transport.Tensor)

// posts are the services of a worker that take posts.
type posts struct {
	heads sync.Pool // of *[]byte

	mu       sync.RWMutex
	services map[string]postHandler
}

// deliver gives a message to its service, which takes over what it holds.
func (s *posts) deliver(from WorkerInfo, m *transport.Message) error {
	end := len(m.Header) - 1
	if end < 0 || end < int(m.Header[end]) {
		return fmt.Errorf("%w: a post whose service is cut short", ErrProtocol)
	}
	service := m.Header[end-int(m.Header[end]) : end]
	s.mu.RLock()
	fn := s.services[string(service)]
	s.mu.RUnlock()
	if fn == nil {
		return fmt.Errorf("%w: posts to %q", ErrNotServed, service)
	}
	tensors := m.Tensors
	m.Tensors = nil
	header := m.Header[:end-len(service)]
	fn(from, header[:len(header):len(header)], tensors)
	return nil
}
