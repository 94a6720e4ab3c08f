package kernels

// Begin is [HostRoutine]'s.
func (r *cpuRoutine) Begin() *Frame {
	f := r.idle.Get().(*cpuFrame)
	f.host.HostRun = hostRun{f}
	return &f.host
}

// hostRun is one run on the host's memory.
type hostRun struct{ f *cpuFrame }

func (h hostRun) Run(mem [][]byte) error {
	err := h.f.run(mem)
	clear(h.f.mem)
	return err
}

func (h hostRun) End() { h.f.routine.idle.Put(h.f) }
