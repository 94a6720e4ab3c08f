package transport

import (
	"github.com/weft-project/weft/transport/internal/identity"
	"github.com/weft-project/weft/transport/internal/wire"
)

// What can go wrong with links and streams. Every error of this package wraps one of these, io.EOF
// or the context's.
var (
	// ErrClosed: it was closed by this side.
	ErrClosed = wire.ErrClosed
	// ErrPeerClosed: the peer closed the link in good order.
	ErrPeerClosed = wire.ErrPeerClosed
	// ErrPeerLost: the peer fell silent, or its process is gone.
	ErrPeerLost = wire.ErrPeerLost
	// ErrUnreachable: no link could be made.
	ErrUnreachable = wire.ErrUnreachable
	// ErrBusy: the peer is there, and refuses links because too many dial to it. That is no sign
	// that it is lost.
	ErrBusy = wire.ErrBusy
	// ErrIdentity: the two ends are not of one job.
	ErrIdentity = wire.ErrIdentity
	// ErrReset: one side aborted the stream.
	ErrReset = wire.ErrReset
	// ErrFrame: a message breaks the rules of the wire; see [FrameError].
	ErrFrame = wire.ErrFrame
	// ErrFinished: the cause of a stream's context once both directions have ended in good order.
	ErrFinished = wire.ErrFinished
	// ErrNoSecret: the environment names nothing by which a process could show that it is of a job.
	ErrNoSecret = identity.ErrNoSecret
)

type (
	// Error says what failed with which peer: Op, Peer, Err (one of the above), Reason and Cause.
	Error = wire.Error
	// FrameError says which Part of a frame broke the rules, what was expected (Want) and what was
	// Found.
	FrameError = wire.FrameError
	// Reason is why the peer has reset a stream: a Code on which both ends agree, and a Text. It
	// lies beneath the ErrReset that streams give then.
	Reason = wire.Reason
)

// ReasonOf is what travels of an error that a stream is reset with; nil of nil.
func ReasonOf(err error) *Reason { return wire.ReasonOf(err) }
