package kernels

import (
	"fmt"

	"github.com/weft-project/weft/device"
)

// PlaceAlign divides the Off of every [Place], in bytes.
const PlaceAlign = 16

// Place is where an operand or a result of a [Call] lies: Len bytes, from Off, of one of the
// routine's buffers.
type Place struct{ Buf, Off, Len int }

// overlaps says whether two places share a byte.
func (p Place) overlaps(q Place) bool {
	return p.Buf == q.Buf && p.Len > 0 && q.Len > 0 && p.Off < q.Off+q.Len && q.Off < p.Off+p.Len
}

// Call is one instruction of a routine, with places for what it reads and writes.
type Call struct {
	Instr     Instr
	In        []Type
	Outs, Ins []Place
}

// Routine is a list of calls over one set of buffers, prepared together, so that running it costs
// one launch. It is safe for concurrent runs on different buffers; buffers that it only reads may
// be shared.
type Routine interface {
	// Run runs the calls in order. The buffers lie on one device and are as long as the routine was
	// told; what is read may be given twice, what is written only once. The error is a [CallError]
	// where a call failed, [ErrOperands] where the buffers do not fit.
	Run(bufs []*device.Buffer) error
}

// Scratcher is a [Routine] that takes memory from the device for the time of a run, beside its
// buffers.
type Scratcher interface {
	// Scratch is how many bytes.
	Scratch() int
}

// CallError tells which call of a routine failed.
type CallError struct {
	At    int
	Instr Instr
	Err   error
}

func (e *CallError) Error() string { return fmt.Sprintf("instruction %d: %v", e.At, e.Err) }

// Unwrap lets errors.Is find the cause.
func (e *CallError) Unwrap() error { return e.Err }

// HostRoutine is a [Routine] that also runs on memory of the host, for who holds the buffers and
// knows what is in them: nothing is checked, and no launch is paid for.
type HostRoutine interface {
	Routine
	// Begin gives what one run needs. End it.
	Begin() *Frame
}

// Frame is what one run on the host's memory needs.
type Frame struct {
	Spare []byte  // the caller's: it is kept, as it is, for a later run
	Of    HostRun // the backend's

	mem [][]byte
}

// Run runs the calls in order, as [Routine.Run], on the routine's buffers: each exactly as long as
// it was told, and aligned as a buffer's memory. It keeps nothing of mem.
func (f *Frame) Run(mem [][]byte) error {
	f.mem = append(f.mem[:0], mem...) // the caller's list would escape to the heap by way of the interface
	err := f.Of.Run(f.mem)
	clear(f.mem)
	return err
}

// End ends the run; the frame must not be used any more.
func (f *Frame) End() { f.Of.End() }

// HostRun is a backend's part of a [Frame].
type HostRun interface {
	// Run is [Frame.Run].
	Run(mem [][]byte) error
	// End is [Frame.End].
	End()
}
