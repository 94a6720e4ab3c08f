package cpu

import "github.com/weft-project/weft/kernels"

// Begin is [HostRoutine]'s.
func (r *routine) Begin() *kernels.Frame {
	f := r.idle.Get().(*frame)
	f.host.HostRun = hostRun{f}
	return &f.host
}

// hostRun is one run on the host's memory.
type hostRun struct{ f *frame }

func (h hostRun) Run(mem [][]byte) error {
	err := h.f.run(mem)
	clear(h.f.mem)
	return err
}

func (h hostRun) End() { h.f.routine.idle.Put(h.f) }
