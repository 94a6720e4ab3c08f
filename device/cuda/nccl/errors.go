package nccl

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weft-project/weft/device/cuda"
)

// What can be wrong with NCCL; an [Error] says more. A library that is not there is
// [cuda.ErrNoLibrary].
var (
	ErrOld      = errors.New("this NCCL is too old")
	ErrMissing  = errors.New("this NCCL lacks a function")
	ErrCUDA     = errors.New("NCCL met an error of CUDA")
	ErrSystem   = errors.New("NCCL met an error of the system or the network")
	ErrInternal = errors.New("NCCL met an error of its own")
	ErrArgument = errors.New("NCCL was given a wrong argument")
	ErrUsage    = errors.New("NCCL was used wrongly")
	ErrRemote   = errors.New("another rank of the communicator failed or is gone")
	ErrTimeout  = errors.New("NCCL waited for too long")
	ErrAborted  = errors.New("the communicator was aborted")
	ErrClosed   = errors.New("the communicator is closed")
)

// NCCL's results.
const (
	success    = 0
	inProgress = 7
	timeout    = 8
)

// Error is what NCCL says.
type Error struct {
	Op   string // NCCL's function
	Code int    // and its result; 0 where it was not asked
	Says string // NCCL's own words
	Text string // what to do
	Err  error
}

func (e *Error) Error() string {
	s := e.Op
	if e.Code != 0 {
		s += fmt.Sprintf(": NCCL's result %d", e.Code)
	}
	for _, part := range []string{e.Err.Error(), e.Says, e.Text} {
		if part != "" {
			s += ": " + part
		}
	}
	return s
}

// Unwrap lets errors.Is find the sentinel.
func (e *Error) Unwrap() error { return e.Err }

const debug = "NCCL_DEBUG=WARN in the environment has NCCL say more"

// meanings are what to do about the results.
var meanings = [...]struct {
	err  error
	text string
}{
	1: {ErrCUDA, "nvidia-smi says whether the driver works and which CUDA it serves; " + debug},
	2: {ErrSystem, "NCCL_SOCKET_IFNAME names the network to use; a container needs shared memory (--shm-size) and memory that may be locked (--ulimit memlock=-1); " + debug},
	3: {ErrInternal, debug},
	4: {ErrArgument, debug},
	5: {ErrUsage, "each rank needs a GPU of its own, and all ranks the same version of NCCL; " + debug},
	6: {ErrRemote, "look for the first error of the other ranks"},
	8: {ErrTimeout, "look for the rank that has not come"},
}

// Failure is the error of a function's result, with NCCL's words for it: as Error says it, also of
// another process. Of success it is nil.
func Failure(op string, code int, says ...string) error {
	if code == success {
		return nil
	}
	e := &Error{Op: op, Code: code, Says: said(says...), Err: ErrInternal, Text: debug}
	if code > 0 && code < len(meanings) && meanings[code].err != nil {
		e.Err, e.Text = meanings[code].err, meanings[code].text
	}
	return e
}

// said joins NCCL's words, of which some repeat others.
func said(words ...string) string {
	var out []string
	for _, w := range words {
		if w = strings.TrimSpace(w); w != "" && (len(out) == 0 || !strings.Contains(out[len(out)-1], w)) {
			out = append(out, w)
		}
	}
	return strings.Join(out, ": ")
}

// without is the error where there is no library.
func without(why string) error {
	return &Error{Op: "open NCCL", Err: cuda.ErrNoLibrary, Says: why,
		Text: "install libnccl2 (apt), or pip's nvidia-nccl-cu12 or nvidia-nccl-cu13, or name libnccl.so.2 in WEFT_NCCL"}
}
