package transport

import (
	"context"
	"io"
)

// The lanes of a link: ways by which its bytes travel. Every link has LaneQUIC.
const (
	LaneQUIC  = "quic"  // everything, over one QUIC connection
	LaneLocal = "local" // both ends on one host: frames over a unix socket, tensors in shared memory
	LaneBulk  = "bulk"  // large tensors over several TLS connections
)

// LaneState is a lane of one link.
type LaneState struct {
	Name     string
	Why      string // why it is not used; empty when it is
	Sent     uint64 // bytes of frames and tensors
	Received uint64
}

// conduit is an ordered stream of bytes on which a link's frames travel: a kept QUIC stream, or a unix socket. Reads come
// from one goroutine; so do writes. Close interrupts both.
type conduit interface {
	io.ReadWriteCloser
}

// hauler moves the bytes of a message's large tensors beside the frames. One hauler serves all streams of a link at
// both ends; it is safe for concurrent use.
//
// The sender asks begin for a ticket, which travels in the message's frame in the tensors' stead. When the frame is on
// its way the sender calls deliver, which returns when the tensors may be changed again, or abandon. The receiver gives the
// ticket to fetch.
type hauler interface {
	// lane is the lane's name.
	lane() string
	// takes says whether tensors of that many bytes in all should go this way.
	takes(tensors []Tensor, bytes int64) bool
	// begin prepares to move the tensors; it does not wait for the peer.
	begin(tensors []Tensor) (transfer, error)
	// fetch fills in the buffers of arriving tensors, whose other fields came with the frame and are checked. On failure it
	// has released what it had allocated. The ticket comes from the peer and may hold anything.
	fetch(c context.Context, ticket []byte, tensors []Tensor, place Place) error
	// refuse tells the peer that nobody will fetch a ticket.
	refuse(ticket []byte)
	// control takes what the peer's hauler said with the say of newHauler. It must not wait.
	control(b []byte) error
	// close ends the hauler with its link; pending calls fail with err.
	close(err error)
}

// transfer is a message's tensors on their way.
type transfer interface {
	ticket() []byte
	// deliver returns when the tensors are not needed any more, or c has ended.
	deliver(c context.Context) error
	// abandon gives up, before or instead of deliver.
	abandon()
}

// say sends a hauler's word to the peer's hauler of the same lane; it does not wait. The words arrive in order, and in order
// with the frames of messages.
type say func(b []byte) error
