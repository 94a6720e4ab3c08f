package lane

import (
	"context"
	"io"
	"net"
	"sync/atomic"

	"github.com/weft-project/weft/transport/internal/identity"
	"github.com/weft-project/weft/transport/internal/wire"
)

// A link is set up over its QUIC connection, in four words: the dialler's offers, the acceptor's
// answers to them, which lanes the dialler has joined, and which of those the acceptor has. Offers
// and answers are opaque to all but the lane (at most MaxOffer bytes); instead of one, an end says
// why it has none, in words for people.

// MaxOffer bounds an offer and an answer, in bytes.
const MaxOffer = 1024

// Maker makes one lane for the links of a Network. It is safe for concurrent use. Only makers of
// lanes that the configuration allows are made.
type Maker interface {
	// Lane is the lane's name.
	Lane() string
	// Offer is the dialler's first word. It knows of no link: what a link needs for itself, Expect
	// or Join makes. An error says why the lane cannot be used from here.
	Offer() ([]byte, error)
	// Serve makes what a listener at that address (of UDP, its port known) needs. It fails where
	// the lane cannot be served; that fails the lane, not the listener.
	Serve(at net.Addr) (Server, error)
	// Join connects the dialler's end with the server that gave the answer. The answer comes from
	// the peer and may hold anything. When c ends Join must return soon and leave nothing.
	Join(c context.Context, with Peer, answer []byte) (*End, error)
}

// Server is a lane at one listener. It is safe for concurrent use.
type Server interface {
	// Expect answers a dialler's offer, which may hold anything; an error says why the lane cannot
	// be used with it. What is returned is ready for the dialler's Join at once. wait is called
	// exactly once, soon after Expect, and beside the dialler's Join; its context ends where the
	// dialler has not joined. It gives this end of the lane, or leaves nothing. It may give the end
	// at once: where the dialler does not join after all, the end is dropped.
	Expect(with Peer, offer []byte) (answer []byte, wait func(c context.Context) (*End, error), err error)
	// Close ends what listens. Lanes that are up live on; waits fail.
	Close()
}

// Refusing is a Server that tells whom it refused.
type Refusing interface {
	// TellTo says who hears of it.
	TellTo(r *identity.Refusals)
}

// Peer is what both ends know of a link before it has lanes.
type Peer struct {
	// Secret is known to the two ends of this link alone, and differs for each lane: it is exported
	// from the link's TLS session. Who knows it is the peer.
	Secret [32]byte
	Addr   net.Addr // the other end of the QUIC connection
}

// End is one end of a lane that is up. Its owner calls NewChannel at most once, and then closes the
// channel; or else calls Drop. A conduit is closed by the link that uses it.
type End struct {
	Conduit    Conduit // for the link's frames; nil when they stay on QUIC
	NewChannel func(Env) Channel
	Drop       func() // for a lane that is not used after all; closes the conduit too
}

// Env is what a link gives to a channel.
type Env struct {
	Say Say
	// Suspect asks the link to find out whether the peer is still there, because a connection of
	// the lane has broken. The link ends as lost if it does not answer soon, and at once where err
	// is a FrameError. It does not wait.
	Suspect func(err error)
	Count   *Traffic // what the channel has moved: it counts tensors' bytes as they go and come
	// Calls counts messages that go and come, but those of streams with large tensors, on this link
	// and perhaps others; may be nil.
	Calls *atomic.Uint64
	// Begin and find are for tensors of a message that a channel leaves to the link's others: begin
	// asks those but one, find finds one by its lane's code, or nil.
	Begin func(but Channel, ts []wire.Tensor, bytes int64) (Transfer, byte, error)
	Find  func(lane byte) Channel
}

// Traffic counts the bytes of a lane.
type Traffic struct{ Sent, Received atomic.Uint64 }

// Conduit is an ordered stream of bytes on which a link's frames travel: a kept QUIC stream, or a
// unix socket. Reads come from one goroutine; so do writes. Close interrupts both. A Read that
// fails means that the peer's process is gone, or that the link is.
type Conduit interface {
	io.ReadWriteCloser
	// TryWrite writes what can be written without waiting, perhaps nothing. It is a write: it does
	// not run beside Write.
	TryWrite(b []byte) (int, error)
}

// Channel moves the bytes of a message's large tensors beside the frames. One channel serves all
// streams of a link at both ends; it is safe for concurrent use.
//
// The sender asks Begin for a ticket, which travels in the message's frame in the tensors' stead.
// When the frame is on its way the sender calls Deliver, which returns when the tensors may be
// changed again, or Abandon. The receiver gives the ticket to Fetch, or to Refuse, in no order and
// perhaps never. It is the link that bounds how many bytes are fetched at a time.
type Channel interface {
	// Lane is the lane's name.
	Lane() string
	// Takes says whether tensors of that many bytes in all should go this way.
	Takes(tensors []wire.Tensor, bytes int64) bool
	// Begin prepares to move the tensors; it does not wait for the peer. When it fails, the next
	// lane is asked. Close may come while it runs, and before Deliver or Abandon. Bytes of
	// tensors on any device go by wire.WriteTensor and wire.ReadPayload, or in parts by Each.
	Begin(tensors []wire.Tensor) (Transfer, error)
	// Fetch fills in the buffers of arriving tensors, whose other fields came with the frame and
	// are checked. On failure it has released what it had allocated, cleared Buf, and refused the
	// ticket. The ticket comes from the peer and may hold anything. c ends with the caller's
	// context, with its stream's, and with the link.
	Fetch(c context.Context, ticket []byte, tensors []wire.Tensor, place wire.Place) error
	// Refuse tells the peer that nobody will fetch a ticket.
	Refuse(ticket []byte)
	// Control takes what the peer's channel said with the Say of NewChannel. It must not wait, nor
	// keep b. An error ends the link: the peer breaks the rules.
	Control(b []byte) error
	// Close ends the channel with its link; pending calls fail with err.
	Close(err error)
}

// Failing is a channel that may cease to be used while its link lives.
type Failing interface {
	// Why says for which reason it is not used; empty when it is.
	Why() string
}

// What a ticket may have.
const (
	OuterTicket   = 18                          // bytes of a ticket that another's may follow, of lane cuda
	MaxTicket     = OuterTicket + MaxTicketPart // bytes
	MaxTicketPart = 512                         // of lanes that another's ticket may hold
)

// Transfer is a message's tensors on their way.
type Transfer interface {
	// Ticket has at most MaxTicketPart bytes; that of lane cuda, which may hold another's, has at
	// most MaxTicket.
	Ticket() []byte
	// Deliver returns when the tensors are not needed any more, or c has ended. c ends with the
	// sender's context, with its stream's, and with the link. When it fails nothing is held but by
	// references, for as long as a write is stuck.
	Deliver(c context.Context) error
	// Abandon gives up, instead of Deliver.
	Abandon()
}

// Say sends a channel's word to the peer's channel of the same lane, at most MaxWord bytes; it does
// not wait. The words arrive in order, and in order with the frames of messages.
type Say func(b []byte) error

// MaxWord bounds what a channel says at a time, in bytes.
const MaxWord = 1024
