package gpu

import (
	"math"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
)

// code is an instruction made ready for operands of some types: launches in order, whose addresses
// are filled in by who knows them.
type code struct {
	launches []launch
	scratch  int   // bytes that the launches share, and nobody else sees; aligned to 256
	old      []int // where results are what was there while a flag is up that is heeded: the operands that these are
	copies   int   // of operands, which later codes may read, too
	narrow   map[scratchKey]scratchCopy

	workspace bool // some of the scratch is a library's, without which kernels would do
}

// launch is one launch of a code.
type launch struct {
	fn          cuda.Func
	body        string // of a generated kernel, where fn is nil: it is loaded with the others of its sequence
	grid, block [3]uint32
	shared      uint32
	makes       form // of the copy that is its first argument, of what is its second
	args        []arg
}

// arg is an argument, in the order of the kernel's parameters.
type arg struct {
	kind  argKind
	index int             // of the result or operand
	value uint64          // the bytes from its beginning, or the number itself
	tiles *cuda.TensorMap // not nil: a map of what lies there, in the place of the address
}

type argKind uint8

const (
	argNone    argKind = iota // 8 bytes of zeros
	argOut                    // the address of a result
	argIn                     // of an operand
	argScratch                // of the scratch
	argCopy                   // of a copy of an operand
	argFault                  // of the GPU's fault record
	argCode                   // the fault code of this instruction, with the number of the run's flag in the upper half, 8 bytes
	argHeed                   // the flags that a step heeds, 8 bytes
	arg32                     // a number of 4 bytes
	arg64                     // a number of 8 bytes
)

// call appends a launch of as many blocks of as many threads, whose arguments follow; with no
// blocks it is left out. It is valid until the next.
func (c *code) call(fn cuda.Func, blocks, threads int) *launch {
	c.launches = append(c.launches, launch{fn: fn, grid: [3]uint32{uint32(blocks), 1, 1}, block: [3]uint32{uint32(threads), 1, 1}})
	return &c.launches[len(c.launches)-1]
}

// temp sets bytes of the scratch aside, and says where they begin.
func (c *code) temp(n int) (off int) {
	off = c.scratch
	c.scratch += (n + 255) &^ 255
	return off
}

func (l *launch) arg(a arg) *launch { l.args = append(l.args, a); return l }

// inline appends another code, whose results and operands are addresses of this one.
func (c *code) inline(sub *code, outs, ins []arg) {
	scratch := scratchArg(c.temp(sub.scratch))
	for _, l := range sub.launches {
		args := make([]arg, len(l.args))
		for k, a := range l.args {
			switch a.kind {
			case argOut:
				args[k] = outs[a.index].plus(a.value)
			case argIn:
				args[k] = ins[a.index].plus(a.value)
			case argScratch:
				args[k] = scratch.plus(a.value)
			case argCopy:
				args[k] = arg{kind: argCopy, index: c.copies + a.index, value: a.value}
			default:
				args[k] = a
			}
			args[k].tiles = a.tiles
		}
		l.args = args
		c.launches = append(c.launches, l)
	}
	c.copies += sub.copies
	c.workspace = c.workspace || sub.workspace
}

// plus is an address some bytes further on.
func (a arg) plus(bytes uint64) arg { a.value += bytes; return a }

func outArg(k int) arg       { return arg{kind: argOut, index: k} }
func inArg(k int) arg        { return arg{kind: argIn, index: k} }
func scratchArg(off int) arg { return arg{kind: argScratch, value: uint64(off)} }

// dynamic asks for shared memory beside what the kernel declares.
func (l *launch) dynamic(bytes int) *launch { l.shared = uint32(bytes); return l }

func (l *launch) out(k int) *launch    { return l.arg(outArg(k)) }
func (l *launch) in(k int) *launch     { return l.arg(inArg(k)) }
func (l *launch) temp(off int) *launch { return l.arg(scratchArg(off)) }
func (l *launch) u32(n int) *launch    { return l.arg(arg{kind: arg32, value: uint64(uint32(n))}) }
func (l *launch) u64(n uint64) *launch { return l.arg(arg{kind: arg64, value: n}) }

// flag adds a condition, as 0 or 1.
func (l *launch) flag(is bool) *launch {
	if is {
		return l.u32(1)
	}
	return l.u32(0)
}

// float adds a number of a floating-point dtype.
func (l *launch) float(d device.Dtype, v float64) *launch {
	if d == device.Float32 {
		return l.u32(int(math.Float32bits(float32(v))))
	}
	return l.u64(math.Float64bits(v))
}

// heed adds two arguments: the address of the fault record, and the flags in it of which none may
// be up, or else nothing is written.
func (l *launch) heed() *launch { return l.arg(arg{kind: argFault}).arg(arg{kind: argHeed}) }

// fault adds two arguments: the address of the fault record, and the code that this instruction
// reports under.
func (l *launch) fault() *launch { return l.arg(arg{kind: argFault}).arg(arg{kind: argCode}) }
