package kernels

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weft-project/weft/device"
)

// Map computes an expression for every element of Shape, to which all operands broadcast, and gives
// any number of results. Values in it are registers, numbered from 0: first the operands, then what
// the steps make. Every operand, register and result has one dtype.
type Map struct {
	Shape device.Shape
	Steps []Step
	Outs  []Out
}

// Step makes a register of earlier ones.
type Step struct {
	Op   Instr  // a Unary or a Binary
	Args [2]int // registers; a Unary reads the first
}

// Out is a result of a Map: a register, of the map's shape, or what a reduction makes of it.
type Out struct {
	Reg  int
	Fold *Reduce // nil: every element
}

func (i Map) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Map%v{", i.Shape)
	for _, s := range i.Steps {
		fmt.Fprintf(&b, "%v", s.Op)
		if _, unary := s.Op.(Unary); unary {
			fmt.Fprintf(&b, " r%d; ", s.Args[0])
		} else {
			fmt.Fprintf(&b, " r%d r%d; ", s.Args[0], s.Args[1])
		}
	}
	for k, o := range i.Outs {
		if k > 0 {
			b.WriteString(", ")
		}
		if o.Fold != nil {
			fmt.Fprintf(&b, "%v ", o.Fold)
		}
		fmt.Fprintf(&b, "r%d", o.Reg)
	}
	b.WriteString("}")
	return b.String()
}

// Infer takes one or more tensors of one floating-point dtype that broadcast to Shape.
func (i Map) Infer(in []Type) ([]Type, error) {
	if len(in) == 0 {
		return nil, refuse(i, in, "expected one or more operands")
	}
	if err := expectFloats(i, in, len(in)); err != nil {
		return nil, err
	}
	if err := i.Shape.Check(); err != nil {
		return nil, refuse(i, in, "%v", err)
	}
	for k, t := range in {
		if s, ok := broadcastShapes(t.Shape, i.Shape); !ok || !s.Equal(i.Shape) {
			return nil, refuse(i, in, "operand %d does not broadcast to %v", k, i.Shape)
		}
	}
	whole := Type{in[0].Dtype, i.Shape}
	for k, s := range i.Steps {
		if err := i.checkStep(in, k, s, whole); err != nil {
			return nil, err
		}
	}
	if len(i.Outs) == 0 {
		return nil, refuse(i, in, "it has no results")
	}
	out := make([]Type, len(i.Outs))
	for k, o := range i.Outs {
		if o.Reg < 0 || o.Reg >= len(in)+len(i.Steps) {
			return nil, refuse(i, in, "result %d reads register %d, which there is not", k, o.Reg)
		}
		out[k] = whole
		if o.Fold == nil {
			continue
		}
		folded, err := o.Fold.Infer([]Type{whole})
		if err != nil {
			return nil, refuse(i, in, "result %d: %v", k, err)
		}
		out[k] = folded[0]
	}
	return out, nil
}

func (i Map) flops(in, out []Type) int {
	folds := 0
	for _, o := range i.Outs {
		if o.Fold != nil {
			folds++
		}
	}
	return (len(i.Steps) + folds) * i.Shape.Elems()
}

func (i Map) readsNarrow(int) bool { return true }

// No step reads the operand, in place, after the one that writes the result.
func (i Map) overwrites(in, _ []Type, result, operand int) bool {
	n, o := len(in), i.Outs[result]
	if o.Fold != nil || o.Reg < n || !in[operand].Shape.Equal(i.Shape) {
		return false
	}
	first := slices.IndexFunc(i.Outs, func(p Out) bool { return p.Fold == nil && p.Reg == o.Reg })
	return first == result && i.LastReads(n)[operand] <= o.Reg-n
}

// checkStep checks that step k is a function of registers that are there before it.
func (i Map) checkStep(in []Type, k int, s Step, whole Type) error {
	args := s.Args[:]
	switch s.Op.(type) {
	case Unary:
		args = args[:1]
	case Binary:
	default:
		return refuse(i, in, "step %d is %v; expected a Unary or a Binary", k, s.Op)
	}
	types := make([]Type, len(args))
	for n, r := range args {
		if r < 0 || r >= len(in)+k {
			return refuse(i, in, "step %d reads register %d, which there is not yet", k, r)
		}
		types[n] = whole
	}
	_, err := s.Op.Infer(types)
	return err
}

// MatMulThen is a matrix product followed by a Map, done while the product is still in the cache:
// (a, b, the map's operands but the first…) → the map's results. The map's first operand is the
// product. With it come biases, activations and their gradients.
type MatMulThen struct {
	MatMul
	Then Map
}

func (i MatMulThen) String() string { return fmt.Sprintf("%v then %v", i.MatMul, i.Then) }

// Infer takes the operands of the product, and those of the map after its first.
func (i MatMulThen) Infer(in []Type) ([]Type, error) {
	if len(in) < 2 {
		return nil, refuse(i, in, "expected two or more operands")
	}
	c, err := i.MatMul.Infer(in[:2])
	if err != nil {
		return nil, err
	}
	if !c[0].Shape.Equal(i.Then.Shape) {
		return nil, refuse(i, in, "the map has not the product's shape %v", c[0].Shape)
	}
	return i.Then.Infer(append(c, in[2:]...))
}

func (i MatMulThen) flops(in, out []Type) int {
	c, err := i.MatMul.Infer(in[:2])
	if err != nil {
		return 0
	}
	return i.MatMul.flops(in[:2], c) + i.Then.flops(append(c, in[2:]...), out)
}

func (i MatMulThen) readsNarrow(int) bool { return true }

func (i MatMulThen) overwrites(in, out []Type, result, operand int) bool {
	then := append([]Type{{in[0].Dtype, i.Then.Shape}}, in[2:]...)
	return operand >= 2 && i.Then.overwrites(then, out, result, operand-1)
}

// LastReads gives for each register of a map of n operands the last step that reads it: len(Steps)
// where a result does, −1 where nothing does that matters.
func (i Map) LastReads(n int) []int {
	last := slices.Repeat([]int{-1}, n+len(i.Steps))
	for _, o := range i.Outs {
		last[o.Reg] = len(i.Steps)
	}
	for k := len(i.Steps) - 1; k >= 0; k-- {
		if last[n+k] < 0 {
			continue
		}
		for _, r := range i.Steps[k].Reads() {
			last[r] = max(last[r], k)
		}
	}
	return last
}

// Reads are the registers that a step reads.
func (s Step) Reads() []int {
	if _, unary := s.Op.(Unary); unary {
		return s.Args[:1]
	}
	return s.Args[:]
}
