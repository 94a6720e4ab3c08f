package program

import (
	"unsafe"

	"github.com/weft-project/weft/kernels"
)

// Host is how a program runs on memory of the host that its caller holds: without buffers, their checks and their memory.
type Host struct {
	Made    []int // bytes of each result that it makes
	Over    []int // for each of these an input of as many bytes that it may be written over, where nobody else needs that; −1 for none
	Results []int // for each result: an input, or how many inputs there are + one of Made

	program *Program
	routine kernels.HostRoutine // nil where there is nothing to compute
}

// maxSpare is how many bytes of arena are kept with what a run needs.
const maxSpare = 16 << 10

// Host gives the program for the host's memory, nil where it cannot run so, or needs too large an arena.
func (p *Program) Host() *Host {
	given := len(p.unit.Given)
	h := &Host{program: p, Results: p.plan.results, Over: p.plan.over, Made: p.plan.bufs[given : given+len(p.plan.over)]}
	if len(p.parts) == 0 {
		return h
	}
	if h.routine, _ = p.parts[0].routine.(kernels.HostRoutine); h.routine == nil || len(p.parts) > 1 || p.plan.arena > maxSpare {
		return nil
	}
	return h
}

// Run runs the program on the memory of its inputs, then of what it makes; mem has room for one more. It keeps nothing of it. On an error
// what was made is worth nothing.
func (h *Host) Run(mem [][]byte) error {
	if h.routine == nil {
		return nil
	}
	f := h.routine.Begin()
	defer f.End()
	if n := h.program.plan.arena; len(mem) < len(h.program.plan.bufs) { // values without bytes lie in an arena, too
		if f.Spare == nil {
			raw := make([]byte, n+alignment)
			off := int(-uintptr(unsafe.Pointer(unsafe.SliceData(raw))) % alignment)
			f.Spare = raw[off : off+n]
		}
		mem = append(mem, f.Spare)
	}
	if err := f.Run(mem); err != nil {
		return h.program.failed(err, 0)
	}
	return nil
}
