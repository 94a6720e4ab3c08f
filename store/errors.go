package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// What can go wrong with a store; every error of this package wraps one of these or the context's cause.
var (
	ErrTimeout     = errors.New("timeout") // such errors match context.DeadlineExceeded too
	ErrClosed      = errors.New("store is closed")
	ErrBadKey      = errors.New("bad key")
	ErrTooLarge    = errors.New("too large")
	ErrNotANumber  = errors.New("not a number")
	ErrProtocol    = errors.New("protocol violated")
	ErrUnreachable = errors.New("store is unreachable")
	ErrBadURL      = errors.New("bad rendezvous URL")
)

// errNoKey is the core's answer to reading what is not there; callers of a Store never see it, as Get waits.
var errNoKey = errors.New("no such key")

// Error says which operation on which key of which store failed.
type Error struct {
	Op   string // "get", "wait", "dial", …
	Key  string // empty where there is none or more than one
	Addr string // the server's host:port, or the file's path; empty in memory
	Err  error
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("store")
	if e.Addr != "" {
		b.WriteString(" " + e.Addr)
	}
	b.WriteString(": " + e.Op)
	if e.Key != "" {
		fmt.Fprintf(&b, " %q", clip(e.Key))
	}
	return b.String() + ": " + e.Err.Error()
}

// Unwrap lets errors.Is find the sentinel.
func (e *Error) Unwrap() error { return e.Err }

// timeoutError is ErrTimeout and context.DeadlineExceeded with a text of its own.
type timeoutError struct{ msg string }

func (e *timeoutError) Error() string { return e.msg }
func (e *timeoutError) Timeout() bool { return true }
func (e *timeoutError) Is(target error) bool {
	return target == ErrTimeout || target == context.DeadlineExceeded
}

// maxNamed is how many keys an error names.
const maxNamed = 16

// keysTimeout is worded as PyTorch's, whose users search for it: keys are shown with the slash put before them.
func keysTimeout(op string, after time.Duration, keys []string) error {
	if op == "get" {
		op = "wait" // what a get does while it does not end
	}
	msg := fmt.Sprintf("%s timeout after %dms", op, after.Round(time.Millisecond).Milliseconds())
	for i, k := range keys {
		switch {
		case i == maxNamed:
			return &timeoutError{fmt.Sprintf("%s and %d more", msg, len(keys)-i)}
		case i == 0:
			msg += ", keys: /" + clip(k)
		default:
			msg += ", /" + clip(k)
		}
	}
	return &timeoutError{msg}
}

// clip keeps a key from filling the log.
func clip(key string) string {
	const most = 128
	if len(key) <= most {
		return key
	}
	return key[:most] + "…"
}

// operation is one call of a Store's method: its name, its keys and its time.
type operation struct {
	c      context.Context
	cancel context.CancelFunc
	start  time.Time
	name   string
	addr   string
	keys   []string
}

// settings is what every store needs to begin an operation.
type settings struct {
	addr    string
	timeout time.Duration
	limits  Limits
}

func newSettings(addr string, timeout time.Duration, limits Limits) settings {
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	return settings{addr, timeout, limits.withDefaults()}
}

// begin bounds c by the store's timeout and refuses bad keys and a context that is over. The caller cancels the
// operation when there was no error.
func (s settings) begin(c context.Context, name string, keys ...string) (*operation, error) {
	o := &operation{start: time.Now(), name: name, addr: s.addr, keys: keys}
	if _, bounded := c.Deadline(); bounded {
		o.c, o.cancel = c, func() {}
	} else {
		o.c, o.cancel = context.WithTimeout(c, s.timeout)
	}
	err := s.limits.checkKeys(keys)
	if err == nil && o.c.Err() != nil {
		err = o.over()
	}
	if err != nil {
		o.cancel()
		return nil, o.fail(err)
	}
	return o, nil
}

// over says why the operation's context is done.
func (o *operation) over() error {
	if errors.Is(o.c.Err(), context.DeadlineExceeded) {
		return keysTimeout(o.name, o.limit(), o.keys)
	}
	if cause := context.Cause(o.c); !errors.Is(cause, o.c.Err()) {
		return fmt.Errorf("%w: %w", o.c.Err(), cause)
	}
	return o.c.Err()
}

// limit is how long the operation had.
func (o *operation) limit() time.Duration {
	deadline, _ := o.c.Deadline()
	return max(0, deadline.Sub(o.start))
}

// fail dresses err; nil stays nil.
func (o *operation) fail(err error) error {
	if err == nil {
		return nil
	}
	e := &Error{Op: o.name, Addr: o.addr, Err: err}
	if len(o.keys) == 1 {
		e.Key = o.keys[0]
	}
	return e
}
