package collective

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weft-project/weft/collective/internal/desk"
	"github.com/weft-project/weft/collective/internal/fold"
	"github.com/weft-project/weft/rpc"
)

// What can go wrong with a group and its operations.
var (
	// ErrMismatch: members called different operations; see [MismatchError].
	ErrMismatch = desk.ErrMismatch
	// ErrLost: a member is lost, or has left; see [LostError].
	ErrLost = errors.New("a member of the group is gone")
	// ErrAborted: a member has given the operation up.
	ErrAborted = errors.New("a member of the group has given up")
	// ErrClosed: this member has closed the group.
	ErrClosed = errors.New("the group is closed")
	// ErrExcluded: the group's next generation was agreed on without this worker.
	ErrExcluded = errors.New("the group goes on without this worker")
	// ErrUnconfirmed: the job's store has not said which members the next generation has. Who can
	// reach it may go on; Without and With may be called again.
	ErrUnconfirmed = errors.New("the job's store has not confirmed the group's next generation")
	// ErrArguments: what a call was given cannot be.
	ErrArguments = rpc.ErrArguments
	// ErrOp: an operation that elements of that type do not have.
	ErrOp = fold.ErrOp
)

// there says that a call was given no group.
func there(g *Group) error {
	if g == nil {
		return fmt.Errorf("%w: no group", ErrArguments)
	}
	return nil
}

// MismatchError says what two members called under one key.
type MismatchError = desk.MismatchError

// LostError names the member that is gone.
type LostError struct {
	Rank   int
	Worker string
	Cause  error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("%v: rank %d, %s: %v", ErrLost, e.Rank, e.Worker, e.Cause)
}

// Unwrap gives ErrLost and the cause.
func (e *LostError) Unwrap() []error { return []error{ErrLost, e.Cause} }

// LateError names the members that had not called an operation at its deadline, the earliest of all
// members'.
type LateError struct {
	By      string // whose deadline it was
	Missing []string
}

func (e *LateError) Error() string {
	if len(e.Missing) == 0 {
		return fmt.Sprintf("%v: the deadline of %s passed before all data were there", rpc.ErrTimeout, e.By)
	}
	return fmt.Sprintf("%v: the deadline of %s passed; these members have not called it: %s", rpc.ErrTimeout, e.By, strings.Join(e.Missing, ", "))
}

// Unwrap gives rpc.ErrTimeout.
func (e *LateError) Unwrap() error { return rpc.ErrTimeout }

// closedError says that a member has closed the group, as this member has found. Others hear of an
// operation that fails by it as of any other.
type closedError struct{ worker string }

func (e *closedError) Error() string {
	return fmt.Sprintf("%v: %s has closed the group", ErrAborted, e.worker)
}

func (e *closedError) Unwrap() error { return ErrAborted }
