package wire

import (
	"context"

	"github.com/weft-project/weft/device"
)

// ALPN is the protocol that both ends must speak; it versions the frames and the set-up of links.
// In a handshake a hash of the job's id follows it.
const ALPN = "weft/3"

// Tensor is a tensor on a link: its type and its bytes (little-endian, row-major, exactly as many
// as Dtype and Shape say).
type Tensor struct {
	Dtype  device.Dtype
	Shape  device.Shape
	Device device.ID      // where it is to land at the receiver, as the sender's device map says
	Buf    *device.Buffer // nil for an absent tensor (Dtype Invalid, no shape), such as a gradient that does not exist
}

// Message is what travels: a kind, a header that this package does not look into, and tensors.
type Message struct {
	Kind    uint8
	Header  []byte
	Tensors []Tensor
	End     bool // nothing follows from who sends it: Send does what CloseSend does too, and Recv gives io.EOF next
}

// Release drops the message's reference to each of its buffers, and forgets the tensors.
func (m *Message) Release() {
	for _, t := range m.Tensors {
		if t.Buf != nil {
			_ = t.Buf.Release() // an error here means that it was released before: nothing is held
		}
	}
	m.Tensors = nil
}

// Place gives the buffer in which an arriving tensor of that many bytes lands. The buffer must have
// exactly this length.
type Place func(id device.ID, bytes int) (*device.Buffer, error)

// Network makes links. It is safe for concurrent use and holds nothing that needs closing: what its
// listeners and links hold goes with them.
type Network interface {
	// Listen waits for peers at "host:port"; port 0 picks one. c bounds the call, not the
	// listener's life.
	Listen(c context.Context, addr string) (Listener, error)
	// Dial links with the listener at "host:port". It returns once the peer has accepted this end's
	// identity. It fails with ErrIdentity when the ends are not of one job, with ErrBusy where the
	// peer refused it, several times, for too many others that dial to it, and with ErrUnreachable
	// otherwise.
	Dial(c context.Context, addr string) (Link, error)
}

// Listener takes the links that peers dial.
type Listener interface {
	// Addr is the "host:port" to dial, with the port that was picked.
	Addr() string
	// Accept gives the next link whose peer is of this job. It fails with ErrClosed after Close.
	Accept(c context.Context) (Link, error)
	// Close refuses further links, and closes those that were not accepted yet. Accepted links live
	// on.
	Close() error
}

// Link is one authenticated connection to a peer; many streams.
type Link interface {
	// Open makes a stream. The peer learns of it with the first Send or CloseSend. Open waits
	// while the peer has as many streams open as it allows.
	Open(c context.Context) (Stream, error)
	// Accept gives the next stream that the peer opened.
	Accept(c context.Context) (Stream, error)
	// Serve gives every stream that the peer opens to fn, in the place of Accept, until c ends or
	// the link is gone. The reader of the link calls fn, so fn must not wait. Where whole is true a
	// message of that kind has arrived, without tensors, and receiving it does not wait.
	Serve(c context.Context, fn func(s Stream, kind uint8, whole bool))
	// RemoteAddr is the peer's address, for messages to people.
	RemoteAddr() string
	// Vouches says whether the peer has proved that it may come under that name and rank, by a
	// certificate that names them ([IdentityFiles]). The error wraps ErrIdentity. Where the job has
	// a shared secret there is none: each member has its full authority.
	Vouches(name string, rank int) error
	// Lanes says by which ways messages travel on this link, in the order in which they are
	// preferred, and why others cannot.
	Lanes() []LaneState
	// Done is closed when the link is gone.
	Done() <-chan struct{}
	// Err says why the link is gone, nil while it is not: ErrClosed when it was closed here,
	// ErrPeerClosed when the peer closed it in good order, ErrPeerLost when the peer fell silent or
	// its process is gone.
	Err() error
	// Close ends the link in good order: what was sent and has not arrived may be lost, and the
	// peer gets ErrPeerClosed with the reason (its first 200 bytes). Closing twice does nothing.
	Close(reason string) error
}

// Stream carries messages in both directions, in order; one per call. One sender and one receiver
// at a time.
type Stream interface {
	// Send writes one message. It neither keeps m nor releases its buffers; it may keep references
	// of its own to them, until the peer has what it needs.
	Send(c context.Context, m *Message) error
	// Recv reads the next message. place gives the buffer each tensor lands in; nil means host
	// memory. The caller owns the buffers. io.EOF after the peer's CloseSend.
	Recv(c context.Context, place Place) (*Message, error)
	// CloseSend ends what this side sends.
	CloseSend() error
	// Reset aborts both directions, as far as they are not finished: pending and later calls fail
	// with ErrReset here and at the peer, with the reason (there as a [Reason]). What was sent
	// before a CloseSend still arrives if reason is nil.
	Reset(reason error)
	// Context is done when the stream is reset, finished or its link is lost; context.Cause says
	// which.
	Context() context.Context
}
