package simt

import (
	"fmt"
	"math/bits"
)

// Fault is what a kernel did wrong. It loses the machine.
type Fault struct {
	Kernel string
	Line   int    // of the PTX text
	Text   string // the instruction
	Block  [3]uint32
	Thread [3]uint32
	Addr   uint64
	Reason string
}

// Error names the kernel, the line, the thread and the reason.
func (f *Fault) Error() string {
	return fmt.Sprintf("kernel %s, line %d: %s: block (%d,%d,%d), thread (%d,%d,%d): %s", f.Kernel, f.Line, f.Text,
		f.Block[0], f.Block[1], f.Block[2], f.Thread[0], f.Thread[1], f.Thread[2], f.Reason)
}

// Fail stops the kernel for what a lane did.
func (w *Warp) Fail(lane int, addr uint64, reason string) {
	if w.b.fault != nil {
		return
	}
	s := w.b.k.Text[w.pc]
	w.b.fault = &Fault{Kernel: w.b.k.Name, Line: s.Line, Text: s.String(), Block: w.b.id, Thread: w.b.thread(w.id*32 + lane), Addr: addr, Reason: reason}
}

// FailAt stops the kernel for what the first lane of a mask did.
func (w *Warp) FailAt(m uint32, addr uint64, reason string) {
	w.Fail(bits.TrailingZeros32(m), addr, reason)
}
