package simt

import (
	"slices"
	"strings"
)

// opKind says how a warp goes on behind an instruction.
type opKind uint8

// Kinds of instructions.
const (
	opPlain opKind = iota
	OpBranch
	OpExit
	OpSync    // waits for the lanes of its mask
	OpBarrier // waits for other warps
	OpPoll    // asks for what other warps, or copies, do
	OpTell    // tells others what they may ask for: it is their turn behind it
)

// Op is an instruction made ready.
type Op struct {
	Run    Exec
	Poll   func(w *Warp, m uint32) bool // of an OpPoll: whether it has come for all lanes
	Kind   opKind
	Pred   int32 // predicate register, or -1
	Flip   uint32
	Target int32
	Mask   int32 // register with the lanes that a sync needs; -1: all
	Bar    barrierOp
}

// Param is a kernel's parameter, by its place in the argument blob.
type Param struct{ At, Size int }

// Origin is where an instruction stands in the text of a module, and as it stands there.
type Origin struct {
	Line int
	Text string
}

// String is the instruction in one line that is not too long.
func (o Origin) String() string {
	s := strings.Join(strings.Fields(o.Text), " ")
	if len(s) > 200 {
		s = s[:200] + "…"
	}
	return s
}

// Kernel is an entry made ready. It is never changed: machines may share it.
type Kernel struct {
	Name       string
	Params     []Param
	ParamBytes int
	Threads    int // of a block, at most, or 0
	Code       []Op
	Text       []Origin // what the code was made of
	Preds      int
	Template   []uint64 // what every lane of a register begins as
	Special    []Special
	Static     int // bytes of shared memory
	Local      int // bytes of local memory of a thread
	Granule    int // the smallest access to shared memory
	Globals    []GlobalAt
}

// GlobalAt is a register that holds the address of a variable of the module, or one so far behind
// it.
type GlobalAt struct {
	Reg, Var int
	Off      int64
}

// Link is the kernel where the variables of its module lie at some addresses.
func (k *Kernel) Link(vars []uint64) *Kernel {
	if len(k.Globals) == 0 {
		return k
	}
	linked := *k
	linked.Template = slices.Clone(k.Template)
	for _, g := range k.Globals {
		linked.Template[g.Reg] = vars[g.Var] + uint64(g.Off)
	}
	return &linked
}

// barrierOp is a bar instruction.
type barrierOp struct {
	Barrier, Count int32 // registers; count -1: every thread of the block
	Aligned        bool
	Arrive         bool // goes on at once
	Fold           byte // 'p' popc, 'a' and, 'o' or; 0 none
	Dest, Test     int
	Flip           uint32
}

// result gives lanes what a bar.red folds.
func (o *barrierOp) result(w *Warp, m, yes, total uint32) {
	switch o.Fold {
	case 'p':
		w.Each(o.Dest, m, uint64(yes))
	case 'a', 'o':
		w.Preds[o.Dest] &^= m
		if o.Fold == 'o' && yes > 0 || yes == total {
			w.Preds[o.Dest] |= m
		}
	}
}

// Special is a register that the machine fills.
type Special struct {
	Reg  int
	Name string
}
