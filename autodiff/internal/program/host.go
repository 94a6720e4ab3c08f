package program

import (
	"unsafe"

	"github.com/weft-project/weft/kernels"
)

// Host is how a program runs on memory of the host that its caller holds: without buffers, their
// checks and their memory.
type Host struct {
	Made    []int // bytes of each result that it makes
	Over    []int // for each of these an input of as many bytes that it may be written over, where nobody else needs that; −1 for none
	Results []int // for each result: an input, or how many inputs there are + one of Made

	program *Program
	routine kernels.HostRoutine // nil where there is nothing to compute
	between []int               // bytes of each buffer of the plan beside the inputs and the results; each has its piece of the spare memory
	spare   int                 // bytes of all these pieces
}

// maxSpare is how many bytes are kept with what a run needs: where all values that lie between the
// inputs and the results fit into them.
const maxSpare = 16 << 10

// Host gives the program for the host's memory, nil where it runs in several parts or needs more
// memory between its inputs and its results.
func (p *Program) Host() *Host {
	given := len(p.unit.Given)
	made := given + len(p.plan.over)
	h := &Host{program: p, Results: p.plan.results, Over: p.plan.over, Made: p.plan.bufs[given:made], between: p.plan.bufs[made:]}
	if len(p.parts) == 0 {
		return h
	}
	for _, n := range h.between {
		h.spare += aligned(n)
	}
	if h.routine, _ = p.parts[0].routine.(kernels.HostRoutine); h.routine == nil || len(p.parts) > 1 || h.spare > maxSpare {
		return nil
	}
	return h
}

// aligned is how many bytes of an arena a value of n bytes takes.
func aligned(n int) int { return (n + alignment - 1) &^ (alignment - 1) }

// Run runs the program on the memory of its inputs, then of what it makes; mem has room for one
// more. It keeps nothing of it. On an error what was made is worth nothing.
func (h *Host) Run(mem [][]byte) error {
	if h.routine == nil {
		return nil
	}
	f := h.routine.Begin()
	defer f.End()
	if f.Spare == nil && h.spare > 0 {
		raw := make([]byte, h.spare+alignment)
		off := int(-uintptr(unsafe.Pointer(unsafe.SliceData(raw))) % alignment)
		f.Spare = raw[off : off+h.spare]
	}
	at := 0
	for _, n := range h.between {
		mem = append(mem, f.Spare[at:at+n:at+n])
		at += aligned(n)
	}
	if err := f.Run(mem); err != nil {
		return h.program.failed(err, 0)
	}
	return nil
}
