package ctx

import (
	"context"
	"errors"
	"fmt"
)

// What can go wrong with passes.
var (
	ErrNoPass         = errors.New("no pass: this context was not made by Worker.Pass")
	ErrUnknownPass    = errors.New("unknown pass: it was left, or never was here")
	ErrUnknownMessage = errors.New("no such send function in this pass")
	ErrPeerLost       = errors.New("peer lost")
	ErrTimeout        = errors.New("timed out")
	ErrLeft           = errors.New("the pass was left")
	ErrStalled        = errors.New("gradients did not come")
	ErrProtocol       = errors.New("bad message between passes")
)

// Error says on which worker and in which pass something failed.
type Error struct {
	Worker string // the worker that saw it
	Pass   PassID
	Op     string
	Err    error
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: pass %v: %s: %v", e.Worker, e.Pass, e.Op, e.Err)
}

// Unwrap lets errors.Is find the cause.
func (e *Error) Unwrap() error { return e.Err }

// EndError is why a part of a pass, or a backward in it, has ended on a worker because of another
// one. It is the cause of [Pass.Life].
type EndError struct {
	By  string // the worker that left the pass, or was lost
	Err error
}

func (e *EndError) Error() string { return e.Err.Error() }

// Unwrap lets errors.Is find the cause.
func (e *EndError) Unwrap() error { return e.Err }

// AsTimeout makes an expired deadline match ErrTimeout, and leaves other causes as they are.
func AsTimeout(err error) error {
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrTimeout) {
		return fmt.Errorf("%w: %w", ErrTimeout, err)
	}
	return err
}
