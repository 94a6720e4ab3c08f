package gen

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weft-project/weft/kernels"
)

// ErrUnknown is what [Case.Code] says of an instruction that is not this package's.
var ErrUnknown = errors.New("no kernel is written for that instruction")

// Case is what kernels are written for: an instruction and its operands' types. All addresses are
// aligned to [kernels.PlaceAlign]. Instructions are Map, Unary, Binary, Reduce, MaxGrad,
// SumSquares, NonFinite, Cast, Fill, the moves, Viewed maps and moves, and each of these as a
// [kernels.Narrow] one.
type Case struct {
	Instr kernels.Instr
	In    []kernels.Type
}

// Key is equal for cases that give the same code.
func (c Case) Key() string { return fmt.Sprintf("%v %v", c.Instr, c.In) }

// Code is kernels in order, and how many bytes of scratch they share, aligned to 256.
type Code struct {
	Kernels []Kernel
	Scratch int
}

// Kernel is a kernel and its launch. All its parameters are addresses.
type Kernel struct {
	Body   string // PTX from the parameters on: what is the same for equal kernels, whatever they are called
	Params []Param
	Blocks [2]int
	Block  int // threads
}

// Param is an address: of which operand, result or scratch, and how many bytes further.
type Param struct {
	Of    Of
	Index int
	Off   int
}

// Of is what a parameter is the address of.
type Of uint8

// What there is.
const (
	In Of = iota
	Out
	Scratch
)

// Module is the PTX of kernels, one after another, and the name of each; equal ones have one.
func Module(ks []Kernel) (ptx string, names []string) {
	var b strings.Builder
	fmt.Fprintf(&b, ".version 7.0\n.target %s\n.address_size 64\n", targetOf(ks))
	known := map[string]string{}
	for _, k := range ks {
		name, ok := known[k.Body]
		if !ok {
			name = fmt.Sprintf("%s%d", prefix, len(known))
			known[k.Body] = name
			fmt.Fprintf(&b, "%s%d%s", entry, len(known)-1, k.Body)
		}
		names = append(names, name)
	}
	return b.String(), names
}

const (
	prefix = "weft_" // of kernels' names; a number follows
	entry  = "\n.visible .entry " + prefix
)

// Bodies are the kernels of a text of [Module].
func Bodies(text string) (ks []Kernel) {
	for _, part := range strings.Split(text, entry)[1:] {
		ks = append(ks, Kernel{Body: strings.TrimLeft(part, "0123456789")})
	}
	return ks
}

// Code writes the kernels of a case. The error is that of [kernels.Instr.Infer], or wraps
// [ErrUnknown].
func (c Case) Code() (Code, error) {
	out, err := c.Instr.Infer(c.In)
	if err != nil {
		return Code{}, err
	}
	w := &writer{}
	if err := w.instr(c.Instr, c.In, out); err != nil {
		return Code{}, err
	}
	for _, k := range w.Kernels {
		if len(k.Params) > maxParams {
			return Code{}, fmt.Errorf("%w: %d operands and results; a kernel can have %d", ErrUnknown, len(k.Params), maxParams)
		}
	}
	return w.Code, nil
}

// maxParams is how many addresses a kernel's parameters can be: 4 KiB of them.
const maxParams = 512

// writer gathers the kernels of a case.
type writer struct {
	Code
	wide  bool // tests: indices are wide even where they need not be
	large bool // tests: small tensors are treated as large ones
}

// instr writes an instruction. Types are those of memory: float32 may be bfloat16 there.
func (w *writer) instr(i kernels.Instr, in, out []kernels.Type) error {
	switch i := i.(type) {
	case kernels.Narrow:
		return w.instr(i.Of, in, out)
	case kernels.Map:
		w.mapping(i, in, out, nil)
	case kernels.Unary:
		w.mapping(kernels.Map{Shape: out[0].Shape, Steps: []kernels.Step{{Op: i}}, Outs: []kernels.Out{{Reg: 1}}}, in, out, nil)
	case kernels.Binary:
		w.mapping(kernels.Map{Shape: out[0].Shape, Steps: []kernels.Step{{Op: i, Args: [2]int{0, 1}}}, Outs: []kernels.Out{{Reg: 2}}}, in, out, nil)
	case kernels.Reduce:
		w.mapping(kernels.Map{Shape: in[0].Shape, Outs: []kernels.Out{{Fold: &i}}}, in, out, nil)
	case kernels.MaxGrad:
		w.maxGrad(i, in, out[0])
	case kernels.SumSquares:
		w.sumSquares(in[0])
	case kernels.NonFinite:
		w.nonFinite(in[0])
	case kernels.Cast:
		w.cast(in[0], out[0])
	case kernels.Fill:
		w.fill(i, out[0])
	case kernels.Viewed:
		if m, ok := i.Of.(kernels.Map); ok {
			w.mapping(m, in, out, i.In)
			return nil
		}
		return w.moves(i, in, out[0])
	default:
		return w.moves(i, in, out[0])
	}
	return nil
}

// scratch takes bytes that only the case's kernels see.
func (w *writer) scratch(bytes int) Param {
	p := Param{Scratch, 0, w.Scratch}
	w.Scratch += (bytes + 255) &^ 255
	return p
}

// endKernel ends a kernel.
func (w *writer) endKernel(e *emitter, x, y, threads int) {
	w.Kernels = append(w.Kernels, Kernel{e.text(threads), e.params, [2]int{x, y}, threads})
}
