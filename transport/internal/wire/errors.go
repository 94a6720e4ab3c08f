package wire

import (
	"errors"
	"fmt"
)

// What can go wrong with links and streams; every error of this package wraps one of these, io.EOF
// or the context's.
var (
	// ErrClosed: it was closed by this side.
	ErrClosed = errors.New("closed")
	// ErrPeerClosed: the peer closed the link in good order.
	ErrPeerClosed = errors.New("closed by the peer")
	// ErrPeerLost: the peer fell silent, or its process is gone.
	ErrPeerLost = errors.New("peer lost")
	// ErrUnreachable: no link could be made.
	ErrUnreachable = errors.New("unreachable")
	// ErrBusy: the peer is there, and refuses links because too many dial to it. That is no sign
	// that it is lost.
	ErrBusy = errors.New("refused by a crowd")
	// ErrIdentity: the two ends are not of one job.
	ErrIdentity = errors.New("not of this job")
	// ErrReset: one side aborted the stream.
	ErrReset = errors.New("stream was reset")
	// ErrFrame: a message breaks the rules of the wire; see [FrameError].
	ErrFrame = errors.New("bad frame")
	// ErrFinished: the cause of a stream's context once both directions have ended in good order.
	ErrFinished = errors.New("stream is finished")
)

// Error says what failed with which peer.
type Error struct {
	Op     string // "dial", "open", "send", …
	Peer   string // the peer's address
	Err    error  // one of the sentinels
	Reason string // the peer's or the caller's words; may be empty
	Cause  error  // what lies beneath; may be nil
}

func (e *Error) Error() string {
	s := fmt.Sprintf("transport: %s %s: %v", e.Op, e.Peer, e.Err)
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	if e.Cause != nil {
		s += fmt.Sprintf(" (%v)", e.Cause)
	}
	return s
}

// Unwrap lets errors.Is find the sentinel and what lies beneath.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Err}
	}
	return []error{e.Err, e.Cause}
}

// FrameError says which part of a frame broke the rules, what was expected and what was found.
type FrameError struct {
	Part  string // "header", "tensor 3", …
	Want  string
	Found string
	Err   error // what lies beneath, such as io.ErrUnexpectedEOF; may be nil
}

func (e *FrameError) Error() string {
	return fmt.Sprintf("transport: %v: %s: expected %s, found %s", ErrFrame, e.Part, e.Want, e.Found)
}

// Unwrap lets errors.Is find ErrFrame.
func (e *FrameError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrFrame}
	}
	return []error{ErrFrame, e.Err}
}
