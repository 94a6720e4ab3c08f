package ptx

// opKind says how a warp goes on behind an instruction.
type opKind uint8

// Kinds of instructions.
const (
	opPlain opKind = iota
	opBranch
	opExit
	opSync    // waits for the lanes of its mask
	opBarrier // waits for other warps
)

// op is an instruction made ready.
type op struct {
	run    exec
	kind   opKind
	pred   int32 // predicate register, or -1
	flip   uint32
	target int32
	mask   int32 // register with the lanes that a sync needs; -1: all
	bar    barrierOp
}

// param is a kernel's parameter, by its place in the argument blob.
type param struct{ at, size int }

// origin is where an instruction stands in the text of a module.
type origin struct {
	line int
	text string
}

// kernel is an entry made ready.
type kernel struct {
	name     string
	params   []param
	pbytes   int
	threads  int // of a block, at most, or 0
	code     []op
	text     []origin // what the code was made of
	preds    int
	template []lanes // what registers begin as
	special  []special
	static   int      // bytes of shared memory
	local    int      // bytes of local memory of a thread
	granule  int      // the smallest access to shared memory
	meter    *Traffic // or nil
}

// barrierOp is a bar instruction.
type barrierOp struct {
	id, count int32 // registers; count -1: every thread of the block
	aligned   bool
	arrive    bool // goes on at once
	red       byte // 'p' popc, 'a' and, 'o' or; 0 none
	d, p      int
	flip      uint32
}

// result gives lanes what a bar.red folds.
func (o *barrierOp) result(w *warp, m, yes, total uint32) {
	switch o.red {
	case 'p':
		w.each(o.d, m, uint64(yes))
	case 'a', 'o':
		w.p[o.d] &^= m
		if o.red == 'o' && yes > 0 || yes == total {
			w.p[o.d] |= m
		}
	}
}

// special is a register that the machine fills.
type special struct {
	reg  int
	name string
}
