package autodiff

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weft-project/weft/autodiff/internal/compile"
	"github.com/weft-project/weft/autodiff/internal/expr"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/callsite"
	"github.com/weft-project/weft/kernels"
)

// What can go wrong in a computation; every error of this package wraps one of these or one of
// package kernels or device.
var (
	ErrNil         = errors.New("a nil tensor")
	ErrFreed       = errors.New("tensor was freed")
	ErrMixedPasses = errors.New("tensors of two passes meet")
	ErrMixedArenas = errors.New("a tensor of an arena meets others")
	ErrDevices     = errors.New("tensors lie on different devices")
	ErrDtype       = expr.ErrDtype
	ErrFunction    = expr.ErrFunction
	ErrNotLeaf     = errors.New("tensor is no leaf")
	ErrNoRoots     = errors.New("no tensors provided for gradient computation")
	ErrNoGrad      = errors.New("requires grad is not set")
	ErrNotScalar   = errors.New("is not a scalar; all roots need to be scalar, or be given an output gradient")
	ErrGradient    = expr.ErrGradient
	ErrRecompute   = errors.New("a checkpoint's function did not repeat itself")
	ErrGraphFreed  = errors.New("the saved values were freed by an earlier backward; ask that one to retain the graph")
)

// Error says which operation failed, and where the user called it.
type Error struct {
	Op  string // the function or op; empty where Err names it
	At  string // file:line of the caller
	Err error
}

func (e *Error) Error() string {
	text := e.Err.Error()
	if e.Op != "" && !named(e.Op, text, e.Err) {
		text = e.Op + ": " + text
	}
	if e.At == "" {
		return text
	}
	return e.At + ": " + text
}

// named says whether the cause, with its text, names the op itself.
func named(op, text string, err error) bool {
	if rest, ok := strings.CutPrefix(text, op); ok && (strings.HasPrefix(rest, ":") || strings.HasPrefix(rest, "(")) {
		return true
	}
	e := (*kernels.OperandsError)(nil)
	return errors.As(err, &e) && e.Instr == op
}

// Unwrap lets errors.Is find the cause.
func (e *Error) Unwrap() error { return e.Err }

// opError wraps err once with the op and the nearest caller outside Weft's mathematics.
func opError(op string, err error) error {
	var have *Error
	if errors.As(err, &have) {
		return err
	}
	return &Error{Op: op, At: callsite.Outside().String(), Err: err}
}

// withBatch adds to an error of a call, or of its backward, which batch would have fitted, where
// memory ran out. What the run had taken is free again.
func withBatch(c *compile.Function, dev device.Device, err error) {
	var e *device.MemoryError
	if !errors.As(err, &e) || e.Batch != nil {
		return
	}
	if free, size := device.Room(dev); free >= 0 {
		if fits, had, known := c.Fits(free, size); known {
			e.Batch = &device.Batch{Had: had, Fits: fits, Backward: c.Grads}
		}
	}
}

// NodeError says in which recorded function a backward failed.
type NodeError struct {
	Node *Node
	Err  error
}

func (e *NodeError) Error() string {
	return fmt.Sprintf("backward of %s%s: %v", e.Node.Name(), e.Node.Site().CalledAt(), e.Err)
}

// Unwrap lets errors.Is find the cause.
func (e *NodeError) Unwrap() error { return e.Err }
