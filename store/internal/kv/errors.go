package kv

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weft-project/weft/internal/printable"
)

// What can go wrong with a store; every error of this package wraps one of these or the context's
// cause.
var (
	ErrTimeout     = errors.New("timeout") // such errors match context.DeadlineExceeded too
	ErrClosed      = errors.New("store is closed")
	ErrBadKey      = errors.New("bad key")
	ErrTooLarge    = errors.New("too large")
	ErrNotANumber  = errors.New("not a number")
	ErrProtocol    = errors.New("protocol violated")
	ErrUnreachable = errors.New("store is unreachable")
	ErrBadURL      = errors.New("bad rendezvous URL")
	ErrUnsupported = errors.New("not supported by this store")
	ErrFull        = errors.New("store is full")
	ErrCorrupt     = errors.New("corrupt")
	ErrForeign     = errors.New("the server belongs to another user of this host")
	ErrStranger    = errors.New("the store serves its own user's processes alone")
	ErrOtherJob    = errors.New("it is the store of another job's id, or of another version of Weft")
	ErrNotTLS      = errors.New("it has no TLS")
	ErrNeedsTLS    = errors.New("the store takes TLS alone")

	// ErrUncertain marks the failure of a change that may nevertheless have happened: its answer
	// was lost. A failed change without it has not happened.
	ErrUncertain = errors.New("it may have been applied")
)

// ErrNoKey is the core's answer to reading what is not there; callers of a Store never see it, as
// Get waits.
var ErrNoKey = errors.New("no such key")

// Error says which operation on which key of which store failed.
type Error struct {
	Op   string // "get", "wait", "dial", …
	Key  string // empty where there is none or more than one
	Addr string // the server's host:port, or the file's path; empty in memory
	Err  error
}

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("store")
	if e.Addr != "" {
		b.WriteString(" " + e.Addr)
	}
	b.WriteString(": " + e.Op)
	if e.Key != "" {
		fmt.Fprintf(&b, " %q", Clip(e.Key))
	}
	return b.String() + ": " + e.Err.Error()
}

// Unwrap lets errors.Is find the sentinel.
func (e *Error) Unwrap() error { return e.Err }

// Timeout is an ErrTimeout with a text of its own.
func Timeout(msg string) error { return &timeoutError{msg} }

// timeoutError is ErrTimeout and context.DeadlineExceeded with a text of its own.
type timeoutError struct{ msg string }

func (e *timeoutError) Error() string { return e.msg }
func (e *timeoutError) Timeout() bool { return true }
func (e *timeoutError) Is(target error) bool {
	return target == ErrTimeout || target == context.DeadlineExceeded
}

// shown is a key as it may stand in a text without quotes.
func shown(key string) string { return printable.Text(key, 128) }

// Clip keeps a key from filling the log.
func Clip(key string) string {
	const most = 128
	if len(key) <= most {
		return key
	}
	return key[:most] + "…"
}
