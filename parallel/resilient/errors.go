package resilient

import (
	"errors"
	"fmt"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/parallel/resilient/internal/ledger"
)

// What can go wrong with a team.
var (
	// ErrConfig: a Config that cannot be; the error has all that is wrong with it.
	ErrConfig = errors.New("bad configuration of a team")
	// ErrStep: a step that is not the one to come; see [StepError].
	ErrStep = errors.New("wrong step")
	// ErrDifferent: a member has another model, optimizer or state; see [DifferenceError].
	ErrDifferent = errors.New("members of the team differ")
	// ErrNoState: all that had the parameters are lost.
	ErrNoState = ledger.ErrNoState
	// ErrEnded: all others have ended their training.
	ErrEnded = errors.New("the team's training has ended")
	// ErrClosed: this member has closed the team.
	ErrClosed = collective.ErrClosed
	// ErrBehind: a newcomer could not keep up with the others.
	ErrBehind = errors.New("the team is too fast for this newcomer")
)

// StepError says that a step is not the one to come.
type StepError struct{ Step, Expected uint64 }

func (e *StepError) Error() string {
	if e.Step < e.Expected {
		return fmt.Sprintf("%v: step %d has been made; the next one is %d", ErrStep, e.Step, e.Expected)
	}
	return fmt.Sprintf("%v: step %d; the next one is %d", ErrStep, e.Step, e.Expected)
}

// Unwrap gives ErrStep.
func (e *StepError) Unwrap() error { return ErrStep }

// DifferenceError says in what a worker differs from the first one. It is the same on all members
// of a team that begins; a newcomer that differs gets it alone.
type DifferenceError struct {
	Worker, Other string
	Here, There   string // at Worker, and at Other; empty: there is none
}

func (e *DifferenceError) Error() string {
	return fmt.Sprintf("%v: %s has %q where %s has %q", ErrDifferent, e.Worker, e.Here, e.Other, e.There)
}

// Unwrap gives ErrDifferent.
func (e *DifferenceError) Unwrap() error { return ErrDifferent }
