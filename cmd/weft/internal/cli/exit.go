package cli

import (
	"errors"
	"net"
	"time"
)

// The exit codes of every command.
const (
	CodeFailed  = 1
	CodeUsage   = 2
	CodeMissing = 3 // what was asked for is not there, or did not come in time
)

// AnswerPatience is how long a store may take to answer what does not wait, and to be reached where
// the user names no other time.
const AnswerPatience = 5 * time.Second

// ExitError is an error of a command that ran; all other errors are about the command line.
type ExitError struct {
	Code int
	err  error
}

// Exit gives an error of a command that ran its exit code.
func Exit(code int, err error) error { return &ExitError{code, err} }

func (e *ExitError) Error() string { return e.err.Error() }
func (e *ExitError) Unwrap() error { return e.err }

// ListenError gives the error of a server that cannot listen its exit code: it is about the command
// line, unless the system refused the address.
func ListenError(err error) error {
	socket, address := new(net.OpError), new(net.AddrError)
	if !errors.As(err, &address) && errors.As(err, &socket) {
		return Exit(CodeFailed, err)
	}
	return err
}
