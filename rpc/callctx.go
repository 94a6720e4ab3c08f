package rpc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/rpc/internal/membership"
	"github.com/weft-project/weft/rpc/internal/tracing"
	"github.com/weft-project/weft/transport"
)

// callContext is a handler's context: it carries the worker and ends with the caller's deadline,
// with the stream, and when the call is answered. What that takes is only made when somebody asks
// for it.
type callContext struct {
	w        *Worker
	p        *membership.Peer // the caller
	s        transport.Stream
	function string
	pass     ctx.PassID    // 0: none
	deadline time.Time     // zero: none
	span     *tracing.Span // the parent of calls that the handler makes

	mu     sync.Mutex
	inner  context.Context
	cancel context.CancelFunc
	over   bool
}

var _ context.Context = (*callContext)(nil)

// start counts the time that the caller gave; 0 for no limit.
func (c *callContext) start(timeout time.Duration) {
	if timeout > 0 {
		c.deadline = time.Now().Add(timeout)
	}
}

// full is the context of the standard library that does the work.
func (c *callContext) full() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner == nil {
		c.arm()
		if c.over {
			c.cancel()
		}
	}
	return c.inner
}

// arm makes the context. Its cause is a [CancelError] where the call was not answered before it
// ended.
func (c *callContext) arm() {
	stream := c.s.Context()
	inner, cancel := context.WithCancelCause(context.Background())
	unhook := context.AfterFunc(stream, func() { cancel(c.streamOver(context.Cause(stream))) })
	c.inner, c.cancel = inner, func() { unhook(); cancel(nil) }
	if !c.deadline.IsZero() {
		timed, stop := context.WithDeadlineCause(inner, c.deadline, c.timeOver())
		c.inner, c.cancel = timed, func() { unhook(); cancel(nil); stop() }
	}
}

// stop cancels the context.
func (c *callContext) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	if c.cancel != nil {
		c.cancel()
	}
}

// cause says why the context has ended, nil while it has not. It makes nothing where nobody has
// asked for more than the deadline: then the stream itself tells whether it was reset.
func (c *callContext) cause() error {
	c.mu.Lock()
	inner := c.inner
	c.mu.Unlock()
	if inner != nil {
		return context.Cause(inner)
	}
	if !c.deadline.IsZero() && !time.Now().Before(c.deadline) {
		return c.timeOver()
	}
	return nil
}

// Deadline is the caller's.
func (c *callContext) Deadline() (time.Time, bool) { return c.deadline, !c.deadline.IsZero() }

// Done is closed when the caller has given up or lost this worker, at the deadline, and when the
// call is answered.
func (c *callContext) Done() <-chan struct{} { return c.full().Done() }

// Err says why Done is closed.
func (c *callContext) Err() error { return c.full().Err() }

// Value finds the worker.
func (c *callContext) Value(key any) any {
	switch key.(type) {
	case workerKey:
		return c.w
	case tracing.SpanKey:
		if c.span != nil {
			return c.span.ID
		}
		return nil
	case timeoutKey, checkpointKey:
		return nil
	}
	return c.full().Value(key)
}

// CancelError is the cause (context.Cause) of a handler's context that has ended before the call
// was answered. It says who ended the call, and why.
//
// It matches context.Canceled, or where the time was up ErrTimeout and context.DeadlineExceeded;
// and ctx.ErrLeft where a pass was left, ErrPeerLost where the caller or who opened the pass is
// lost, ErrPeerLeft where the caller has left the job, ErrLeft where this worker has. Of a cause
// that the caller gave its own context the text travels, and what it matched of Weft's sentinels.
type CancelError struct {
	Worker   string // that serves the call
	Function string
	Caller   string
	Pass     ctx.PassID // 0 for a call in no pass
	By       string     // the worker that ended the call: the caller, this one, or one that left the pass or was lost
	Reason   string
	kinds    []error
}

func (e *CancelError) Error() string {
	in := ""
	if e.Pass != 0 {
		in = fmt.Sprintf(" in pass %v", e.Pass)
	}
	return fmt.Sprintf("%s: %q, called by %s%s, was cancelled by %s: %s", e.Worker, e.Function, e.Caller, in, e.By, e.Reason)
}

// Unwrap gives what it matches.
func (e *CancelError) Unwrap() []error { return e.kinds }

func (c *callContext) cancelled(by, reason string, kinds ...error) *CancelError {
	return &CancelError{Worker: c.w.name, Function: c.function, Caller: c.p.Name, Pass: c.pass, By: by, Reason: reason, kinds: kinds}
}

// timeOver is the cause at the caller's deadline.
func (c *callContext) timeOver() error {
	return c.cancelled(c.p.Name, "its deadline has passed", ErrTimeout, context.DeadlineExceeded)
}

// passOver is the cause where the pass has ended.
func (c *callContext) passOver(why error) error {
	by := c.w.name
	if end := (*ctx.EndError)(nil); errors.As(why, &end) {
		by = end.By
	}
	return c.cancelled(by, why.Error(), context.Canceled, why)
}

// streamOver is the cause where the stream has ended.
func (c *callContext) streamOver(why error) error {
	var reason *transport.Reason
	switch {
	case errors.Is(why, transport.ErrFinished): // the call was answered
		return why
	case errors.As(why, &reason):
		return c.cancelled(c.p.Name, reason.Text, append(kindsOf(reason.Code), why)...)
	case errors.Is(why, transport.ErrPeerLost):
		return c.cancelled(c.p.Name, "it is lost: "+why.Error(), ErrPeerLost, context.Canceled, why)
	case errors.Is(why, transport.ErrPeerClosed):
		return c.cancelled(c.p.Name, "it has left: "+why.Error(), ErrPeerLeft, context.Canceled, why)
	case errors.Is(why, transport.ErrClosed):
		return c.cancelled(c.w.name, "it has left: "+why.Error(), ErrLeft, context.Canceled, why)
	}
	return c.cancelled(c.p.Name, why.Error(), context.Canceled, why)
}

// endings are the sentinels of which a cancelled call tells the callee; each has its place in the
// list of those that travel.
var endings = []error{context.DeadlineExceeded, ErrTimeout, ctx.ErrLeft, ErrLeft, ErrPeerLost, ErrPeerLeft, context.Canceled}

// reasonOf is what the callee is told of why its caller's context has ended.
func reasonOf(cause error) error {
	for _, s := range endings {
		if errors.Is(cause, s) {
			return &transport.Reason{Code: uint16(1 + slices.Index(portable, s)), Text: cause.Error()}
		}
	}
	return cause
}

// kindsOf is the inverse: what the cause of a callee matches. What says nothing of a deadline is a
// cancellation.
func kindsOf(code uint16) []error {
	if code == 0 || int(code) > len(portable) {
		return []error{context.Canceled}
	}
	s := portable[code-1]
	if s == context.DeadlineExceeded || s == ErrTimeout { //nolint:errorlint // they are sentinels
		return []error{ErrTimeout, context.DeadlineExceeded}
	}
	return []error{context.Canceled, s}
}
