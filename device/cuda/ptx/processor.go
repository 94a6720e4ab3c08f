package ptx

// processor runs kernels on its memory.
type processor struct {
	mem     memory
	races   bool   // find words that two blocks of a launch write, not atomically
	limit   int64  // of steps of one launch
	steps   int64  // instructions of warps that were run
	blocks  uint32 // that were run
	nowhere alloc
}

// launch is of how many blocks and threads one run of a kernel is, and what they are given.
type launch struct {
	grid, block [3]uint32
	shared      int // bytes beside the kernel's own
	params      []byte
}

// runner runs a kernel. It keeps the block of one launch for the next.
type runner struct {
	kernel *kernel
	ready  *block
}

// run does all blocks of a launch. The error is a *Fault.
func (r *runner) run(p *processor, l launch) error {
	k := r.kernel
	threads, shared := int(l.block[0]*l.block[1]*l.block[2]), k.static+l.shared
	b := r.ready
	if b == nil || len(b.shared) != shared || len(b.warps) != (threads+31)/32 {
		b = newBlock(p, k, threads, shared)
		r.ready = b
	}
	b.params, b.dim, b.grid, b.dynamic = l.params, l.block, l.grid, l.shared
	b.fault, b.steps, b.limit = nil, 0, p.limit
	b.launch = p.blocks + 1
	defer r.account(p, b)
	for z := range l.grid[2] {
		for y := range l.grid[1] {
			for x := range l.grid[0] {
				b.id = [3]uint32{x, y, z}
				p.blocks++
				b.serial = p.blocks
				b.run(b.serial == b.launch)
				if b.fault != nil {
					return b.fault
				}
			}
		}
	}
	return nil
}

// account counts a launch.
func (r *runner) account(p *processor, b *block) {
	p.steps += b.steps
	if t := r.kernel.meter; t != nil {
		t.Launches++
		t.Steps += b.steps
	}
}
