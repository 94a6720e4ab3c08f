package simt

// Processor runs kernels on its memory.
type Processor struct {
	Memory  Memory
	Races   bool   // find words that two blocks of a launch write, not atomically
	Limit   int64  // of steps of one launch
	Steps   int64  // instructions of warps that were run
	blocks  uint32 // that were run
	nowhere Allocation
}

// Launch is of how many blocks and threads one run of a kernel is, and what they are given.
type Launch struct {
	Grid, Block [3]uint32
	Shared      int // bytes beside the kernel's own
	Params      []byte
}

// Runner runs a kernel. It keeps the block of one launch for the next.
type Runner struct {
	Kernel *Kernel
	Meter  *Traffic // of a metered kernel; or nil
	ready  *block
}

// Run does all blocks of a launch. The error is a *Fault.
func (r *Runner) Run(p *Processor, l Launch) error {
	k := r.Kernel
	threads, shared := int(l.Block[0]*l.Block[1]*l.Block[2]), k.Static+l.Shared
	b := r.ready
	if b == nil || len(b.shared) != shared || len(b.warps) != (threads+31)/32 {
		b = newBlock(p, k, threads, shared)
		r.ready = b
	}
	b.params, b.dim, b.grid, b.dynamic, b.meter = l.Params, l.Block, l.Grid, l.Shared, r.Meter
	b.fault, b.steps, b.limit = nil, 0, p.Limit
	b.launch = p.blocks + 1
	defer r.account(p, b)
	for z := range l.Grid[2] {
		for y := range l.Grid[1] {
			for x := range l.Grid[0] {
				b.id = [3]uint32{x, y, z}
				p.blocks++
				b.serial = p.blocks
				b.execute(b.serial == b.launch)
				if b.fault != nil {
					return b.fault
				}
			}
		}
	}
	return nil
}

// account counts a launch.
func (r *Runner) account(p *Processor, b *block) {
	p.Steps += b.steps
	if t := r.Meter; t != nil {
		t.Launches++
		t.Steps += b.steps
	}
}
