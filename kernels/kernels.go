package kernels

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weft-project/weft/device"
)

// What can go wrong; errors of this package wrap one of these or an error of package device.
var (
	// ErrOperands: number, dtypes, shapes or buffers do not fit the instruction, or its parameters
	// are impossible; the error of an Infer is an [OperandsError].
	ErrOperands = errors.New("operands do not fit")
	// ErrIndex: an id or a label is out of range; the error is an [IndexError].
	ErrIndex = errors.New("index out of range")
	// ErrNoBackend: nothing here can compute on that device, or with that instruction or library.
	ErrNoBackend = errors.New("no kernel backend")
)

// OperandsError tells why an instruction cannot take operands of some types.
type OperandsError struct {
	Instr string // the instruction, as printed
	In    []Type // of the operands
	Why   string // what was expected
}

func (e *OperandsError) Error() string {
	names := make([]string, len(e.In))
	for k, t := range e.In {
		names[k] = t.String()
	}
	of := strings.Join(names, ", ")
	if len(e.In) == 0 {
		of = "nothing"
	}
	return fmt.Sprintf("%v: %s of %s: %s", ErrOperands, e.Instr, of, e.Why)
}

// Unwrap lets errors.Is find [ErrOperands].
func (e *OperandsError) Unwrap() error { return ErrOperands }

// IndexError tells which id or label was out of range.
type IndexError struct {
	Instr string // the instruction, as printed
	ID    int64  // the offending value
	At    int    // its position among the ids, counted row-major
	N     int    // ids must lie in [0, N)
}

func (e *IndexError) Error() string {
	return fmt.Sprintf("%s: %v: %d at position %d; expected 0 ≤ id < %d", e.Instr, ErrIndex, e.ID, e.At, e.N)
}

// Unwrap lets errors.Is find [ErrIndex].
func (e *IndexError) Unwrap() error { return ErrIndex }

// Type is what is known of a tensor before it has a value.
type Type struct {
	Dtype device.Dtype
	Shape device.Shape
}

// String prints "float32(2, 3)"; a scalar is "float32()".
func (t Type) String() string { return t.Dtype.String() + t.Shape.String() }

// Bytes is the size of a buffer that holds such a tensor.
func (t Type) Bytes() int { return t.Shape.Elems() * t.Dtype.Size() }

// Equal compares dtype and shape.
func (t Type) Equal(o Type) bool { return t.Dtype == o.Dtype && t.Shape.Equal(o.Shape) }

// Instr is one instruction: what to compute. Instructions are values; two are the same when String
// is the same. The slices inside must not be changed after the instruction was made.
type Instr interface {
	// Infer checks the operands and gives the types of the results. The error wraps [ErrOperands]
	// and shows all operand types.
	Infer(in []Type) ([]Type, error)
	// String prints the name and every parameter that matters.
	String() string
}

// Backend prepares instructions for a kind of device. It is safe for concurrent use.
type Backend interface {
	Name() string
	// Prepare fails as [Instr.Infer] does, and with [ErrNoBackend] for an instruction it does not
	// know.
	Prepare(i Instr, in []Type) (Kernel, error)
	// Assemble prepares calls over buffers of the given sizes in bytes, of which it may write those
	// that written marks. Places are aligned to [PlaceAlign] and as long as their types. A result
	// of a call may lie over an operand or another result of the same call only as [Kernel.Run] has
	// it, and then exactly. The error is a [CallError] where a call is wrong, and wraps what
	// Prepare gives.
	Assemble(calls []Call, bufs []int, written []bool) (Routine, error)
}

// Recorder is a [Backend] to which one routine of many calls costs less than many of few, as a GPU
// records it and the host goes on. So a program for it is cut where values begin and end only if
// these are large.
type Recorder interface {
	// OwnBuffer is from how many bytes on a value between instructions should have memory of its
	// own, which is there only while it is needed.
	OwnBuffer() int
}

// Kernel is a prepared instruction, safe for concurrent runs on different buffers.
type Kernel interface {
	// Run computes outs from ins, in the order of [Instr.Infer]; all lie on one device of the
	// backend's kind and have exactly the sizes of their types. An out may be the same buffer as an
	// in only where [Overwrites] says so; any other sharing is [ErrOperands].
	Run(outs, ins []*device.Buffer) error
}

// Computer is the memory of a [device.Accelerator] that comes with what computes on it: a GPU's, of
// package kernels/gpu.
type Computer interface{ Backend() Backend }

// refuse is the error of an Infer.
func refuse(i Instr, in []Type, format string, args ...any) error {
	return &OperandsError{i.String(), slices.Clone(in), fmt.Sprintf(format, args...)}
}

// expect checks the number of operands and that each can exist.
func expect(i Instr, in []Type, n int) error {
	if len(in) != n {
		return refuse(i, in, "expected %d operands, got %d", n, len(in))
	}
	for k, t := range in {
		if !t.Dtype.Valid() {
			return refuse(i, in, "operand %d has no valid dtype", k)
		}
		if err := t.Shape.Check(); err != nil {
			return refuse(i, in, "operand %d: %v", k, err)
		}
	}
	return nil
}

// expectFloats is expect for operands of one floating-point dtype.
func expectFloats(i Instr, in []Type, n int) error {
	if err := expect(i, in, n); err != nil {
		return err
	}
	return sameFloats(i, in, in)
}

// sameFloats checks that all of some operands have one floating-point dtype.
func sameFloats(i Instr, in, some []Type) error {
	for _, t := range some {
		if !t.Dtype.IsFloat() {
			return refuse(i, in, "expected float32 or float64, got %v", t.Dtype)
		}
		if t.Dtype != some[0].Dtype {
			return refuse(i, in, "the dtypes differ; cast one of them")
		}
	}
	return nil
}

// sameShapes checks that the operands' shapes are equal.
func sameShapes(i Instr, in, some []Type) error {
	for _, t := range some {
		if !t.Shape.Equal(some[0].Shape) {
			return refuse(i, in, "the shapes differ: %v and %v", some[0].Shape, t.Shape)
		}
	}
	return nil
}

// result is the single result of an instruction, checked for size.
func result(i Instr, in []Type, d device.Dtype, s device.Shape) ([]Type, error) {
	if err := s.Check(); err != nil {
		return nil, refuse(i, in, "result: %v", err)
	}
	return []Type{{d, s}}, nil
}

// axisOf checks that axis is one of operand t's.
func axisOf(i Instr, in []Type, t Type, axis int) error {
	if axis < 0 || axis >= len(t.Shape) {
		return refuse(i, in, "axis %d does not exist in %v; axes count from 0 and negative ones are not resolved here", axis, t)
	}
	return nil
}

// isIndex says whether ids and labels may have this dtype.
func isIndex(d device.Dtype) bool { return d == device.Int32 || d == device.Int64 }
