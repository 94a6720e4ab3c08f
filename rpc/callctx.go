package rpc

import (
	"context"
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
		c.begin()
		if c.over {
			c.cancel()
		}
	}
	return c.inner
}

// begin makes the context. Its cause is a [CancelError] where the call was not answered before it
// ended.
func (c *callContext) begin() {
	stream := c.s.Context()
	inner, cancel := context.WithCancelCause(context.Background())
	unhook := context.AfterFunc(stream, func() { cancel(c.streamOver(context.Cause(stream))) })
	c.inner, c.cancel = inner, func() { unhook(); cancel(nil) }
	if !c.deadline.IsZero() {
		timed, stop := context.WithDeadlineCause(inner, c.deadline, c.timeOver())
		c.inner, c.cancel = timed, func() { unhook(); cancel(nil); stop() }
	}
}

// end cancels the context.
func (c *callContext) end() {
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
