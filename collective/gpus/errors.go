package gpus

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fxamacker/cbor/v2"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device/cuda/nccl"
	"github.com/weft-project/weft/rpc"
)

// What can go wrong with a communicator, beside the errors of groups and of package nccl.
var (
	// ErrWithout: the group goes without NCCL, which Auto and Off allow.
	ErrWithout = errors.New("the group goes without NCCL")
	// ErrSharedGPU: two members are on one GPU; see [SharedGPUError].
	ErrSharedGPU = errors.New("two members of the group are on one GPU, and NCCL wants one for each")
	// ErrVersions: members have different versions of NCCL.
	ErrVersions = errors.New("members of the group have different versions of NCCL")
	// ErrFailed: NCCL failed on a member; see [FailedError].
	ErrFailed = errors.New("NCCL failed")
)

// SharedGPUError names two members on one GPU.
type SharedGPUError struct {
	Ranks   [2]int
	Workers [2]string
	GPU     string // its UUID
}

func (e *SharedGPUError) Error() string {
	return fmt.Sprintf("%v: rank %d, %s, and rank %d, %s, on %s (LOCAL_RANK gives each worker of a host one of its own)",
		ErrSharedGPU, e.Ranks[0], e.Workers[0], e.Ranks[1], e.Workers[1], e.GPU)
}

// Unwrap gives ErrSharedGPU.
func (e *SharedGPUError) Unwrap() error { return ErrSharedGPU }

// FailedError names the member on which NCCL failed first.
type FailedError struct {
	Rank   int
	Worker string
	Cause  error
}

func (e *FailedError) Error() string {
	return fmt.Sprintf("%v on rank %d, %s: %v", ErrFailed, e.Rank, e.Worker, e.Cause)
}

// Unwrap gives ErrFailed and the cause.
func (e *FailedError) Unwrap() []error { return []error{ErrFailed, e.Cause} }

// MismatchError says what two members called at once.
type MismatchError struct {
	Ranks   [2]int
	Workers [2]string
	Calls   [2]string
	Lines   [2]string // of users' code
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%v: rank %d, %s, calls %s at %s; rank %d, %s, calls %s at %s", collective.ErrMismatch,
		e.Ranks[0], e.Workers[0], e.Calls[0], e.Lines[0], e.Ranks[1], e.Workers[1], e.Calls[1], e.Lines[1])
}

// Unwrap gives collective.ErrMismatch.
func (e *MismatchError) Unwrap() error { return collective.ErrMismatch }

// alarm is an error as it travels. An error of NCCL's keeps its kind.
type alarm struct {
	Op   string
	Code int
	Says string
	Late bool // a deadline passed
}

// mostSaid is how many bytes of an error travel.
const mostSaid = 1 << 10

func (a alarm) err() error {
	if a.Code != 0 {
		return nccl.Failure(a.Op, a.Code, a.Says)
	}
	if a.Late {
		return &late{a.Says}
	}
	return errors.New(a.Says)
}

// late is a deadline that passed on another member.
type late struct{ says string }

func (e *late) Error() string { return e.says }
func (e *late) Unwrap() error { return rpc.ErrTimeout }

// alarmOf is what others are told of an error.
func alarmOf(err error) alarm {
	var e *nccl.Error
	if errors.As(err, &e) && e.Code != 0 {
		return alarm{Op: cut(e.Op), Code: e.Code, Says: cut(e.Says)}
	}
	var failed *FailedError
	if errors.As(err, &failed) {
		err = failed.Cause
	}
	return alarm{Says: cut(err.Error()), Late: errors.Is(err, rpc.ErrTimeout)}
}

// cut is how much of a text travels, as text.
func cut(s string) string { return strings.ToValidUTF8(s[:min(len(s), mostSaid)], "") }

func (a alarm) encode() []byte {
	raw, err := cbor.Marshal(a)
	if err != nil {
		panic(err) // an alarm is texts and a number: it has no value that cannot be encoded
	}
	return raw
}

func (a *alarm) decode(raw []byte) error {
	if err := cbor.Unmarshal(raw, a); err != nil {
		return fmt.Errorf("%w: an alarm: %w", rpc.ErrProtocol, err)
	}
	a.Op, a.Says = cut(a.Op), cut(a.Says)
	return nil
}
