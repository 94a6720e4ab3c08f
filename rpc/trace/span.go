package trace

import (
	"strconv"
	"time"

	"github.com/weft-project/weft/ctx"
)

// ID is a span's: unique in a job, the worker's rank in the top 16 bits. 0 is no span.
type ID uint64

// String prints it in hexadecimal.
func (id ID) String() string { return strconv.FormatUint(uint64(id), 16) }

// worker numbers the worker that made the span.
func (id ID) worker() int { return int(id >> 48) }

// Side says at which end of a call a span was taken.
type Side uint8

// The two ends of a call, and what has none.
const (
	Caller Side = iota // from the call to its answer
	Callee             // from the request's arrival until its answer is on its way
	Local              // what a worker does by itself
)

// String names the side.
func (s Side) String() string {
	switch s {
	case Callee:
		return "callee"
	case Local:
		return "local"
	}
	return "caller"
}

// Span is one call, or one message of gradients, as one of its ends saw it; or what a worker did
// for a while in a backward.
type Span struct {
	ID     ID
	Parent ID // at the callee the caller's span; elsewhere the span that it lies in; 0: none

	Side     Side
	Worker   string // where it was taken
	Peer     string // the other end; empty where there is none
	Kind     string // "call", "remote", "fetch", "gradients"; locally "backward", and in it "compute" and "wait"
	Function string // the message of gradients; the functions that were computed; empty where the kind has none

	Start, End     time.Time
	Pass           ctx.PassID // 0: outside of any
	Outcome        string     // "ok", "error", "timeout", "cancelled", "busy", "lost"
	Sent, Received int64      // bytes of headers and tensors; the callee counts only what it received
}

// Discard is a sink that keeps nothing. A worker with it takes the times that the graph of a pass
// shows.
type Discard struct{}

// Span does nothing.
func (Discard) Span(Span) {}

// Sink takes spans that have ended. Span is called on the goroutines of calls, many at a time: it
// must not wait.
type Sink interface {
	Span(s Span)
}
