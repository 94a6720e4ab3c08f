package kernels

// HostRoutine is a routine that also runs on memory of the host, for who holds the buffers and knows what is in them: nothing is
// checked, and no launch is paid for.
type HostRoutine interface {
	Routine
	// Begin gives what one run needs. End it.
	Begin() *Frame
}

// Frame is what one run on the host's memory needs.
type Frame struct {
	Spare []byte // the caller's: it is kept, as it is, for a later run

	cpu *cpuFrame
}

// Run runs the calls in order, as [Routine.Run], on the routine's buffers: each exactly as long as it was told, and aligned as a buffer's
// memory. It keeps nothing of mem.
func (f *Frame) Run(mem [][]byte) error {
	err := f.cpu.run(mem)
	clear(f.cpu.mem)
	return err
}

// End ends the run; the frame must not be used any more.
func (f *Frame) End() { f.cpu.routine.idle.Put(f.cpu) }

func (r *cpuRoutine) Begin() *Frame {
	f := r.idle.Get().(*cpuFrame)
	f.host.cpu = f
	return &f.host
}
