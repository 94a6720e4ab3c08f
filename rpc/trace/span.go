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

// The two ends of a call.
const (
	Caller Side = iota // from the call to its answer
	Callee             // from the request's arrival until its answer is on its way
)

// String names the side.
func (s Side) String() string {
	if s == Callee {
		return "callee"
	}
	return "caller"
}

// Span is one call as one of its ends saw it.
type Span struct {
	ID     ID
	Parent ID // at the callee the caller's span; at the caller that of the function which calls; 0: none

	Side     Side
	Worker   string // where it was taken
	Peer     string // the other end
	Kind     string // "call", "remote", "fetch"
	Function string // empty where the kind has none

	Start, End     time.Time
	Pass           ctx.PassID // 0: outside of any
	Outcome        string     // "ok", "error", "timeout", "cancelled", "busy", "lost"
	Sent, Received int64      // bytes of headers and tensors; the callee counts only what it received
}

// Sink takes spans that have ended. Span is called on the goroutines of calls, many at a time: it must not wait.
type Sink interface {
	Span(s Span)
}
