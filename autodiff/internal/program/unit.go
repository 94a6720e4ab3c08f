package program

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weft-project/weft/kernels"
)

// ErrUnit is wrapped by what [Unit.Check] finds.
var ErrUnit = errors.New("not a valid unit")

// Value names a tensor of a unit: its index in Types.
type Value int

// Inst is one instruction. It makes new values of earlier ones.
type Inst struct {
	Instr   kernels.Instr
	In, Out []Value
}

// Unit is a function as a list: every value is given or made exactly once, before it is read.
type Unit struct {
	Name    string
	Types   []kernels.Type // by Value; also of values that no instruction makes any more
	Given   []Value        // the inputs, in order
	Insts   []Inst
	Results []Value // in order; may repeat, and may be given

	// Which inputs and results, by their places, lie as bfloat16 where they are float32: for
	// programs of a [kernels.Narrower] that narrows, which pass them to each other. nil: none.
	NarrowGiven, NarrowResults []bool
	// Which results, by their places, are sums of float32 alone, such as the gradients of
	// parameters: what is added up to them, scaled or moved is not rounded to bfloat16 on the way.
	// nil: none.
	WideResults []bool
}

// Fresh adds a value.
func (u *Unit) Fresh(t kernels.Type) Value {
	u.Types = append(u.Types, t)
	return Value(len(u.Types) - 1)
}

// Input adds a given value.
func (u *Unit) Input(t kernels.Type) Value {
	v := u.Fresh(t)
	u.Given = append(u.Given, v)
	return v
}

// Apply adds an instruction at the end and gives its results.
func (u *Unit) Apply(i kernels.Instr, in ...Value) ([]Value, error) {
	outs, err := i.Infer(u.typesOf(in))
	if err != nil {
		return nil, err
	}
	vs := make([]Value, len(outs))
	for k, t := range outs {
		vs[k] = u.Fresh(t)
	}
	u.Insts = append(u.Insts, Inst{i, in, vs})
	return vs, nil
}

func (u *Unit) typesOf(vs []Value) []kernels.Type {
	ts := make([]kernels.Type, len(vs))
	for k, v := range vs {
		ts[k] = u.Types[v]
	}
	return ts
}

// Makers tells for each value which instruction makes it, −1 for none.
func (u *Unit) Makers() []int {
	by := make([]int, len(u.Types))
	for v := range by {
		by[v] = -1
	}
	for k, i := range u.Insts {
		for _, v := range i.Out {
			by[v] = k
		}
	}
	return by
}

// readers lists for each value the instructions that read it, in order.
func (u *Unit) readers() [][]int {
	by := make([][]int, len(u.Types))
	for k, i := range u.Insts {
		for _, v := range i.In {
			if rs := by[v]; len(rs) == 0 || rs[len(rs)-1] != k {
				by[v] = append(rs, k)
			}
		}
	}
	return by
}

// Uses counts how often each value is read, being a result included.
func (u *Unit) Uses() []int {
	n := make([]int, len(u.Types))
	for _, i := range u.Insts {
		for _, v := range i.In {
			n[v]++
		}
	}
	for _, v := range u.Results {
		n[v]++
	}
	return n
}

// Check says what is wrong with a unit: a value read before it is made, made twice, or of another
// type than its instruction infers.
func (u *Unit) Check() error {
	there := make([]bool, len(u.Types))
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%s: %w: %s", u.Name, ErrUnit, fmt.Sprintf(format, args...))
	}
	make1 := func(v Value) bool {
		if v < 0 || int(v) >= len(there) || there[v] {
			return false
		}
		there[v] = true
		return true
	}
	have := func(v Value) bool { return v >= 0 && int(v) < len(there) && there[v] }
	for _, v := range u.Given {
		if !make1(v) {
			return bad("%%%d is given twice or does not exist", v)
		}
	}
	for k, i := range u.Insts {
		for _, v := range i.In {
			if !have(v) {
				return bad("instruction %d (%v) reads %%%d, which is not there yet", k, i.Instr, v)
			}
		}
		outs, err := i.Instr.Infer(u.typesOf(i.In))
		if err != nil {
			return bad("instruction %d: %v", k, err)
		}
		if len(outs) != len(i.Out) {
			return bad("instruction %d (%v) has %d results, not %d", k, i.Instr, len(outs), len(i.Out))
		}
		for n, v := range i.Out {
			if !make1(v) || !u.Types[v].Equal(outs[n]) {
				return bad("instruction %d (%v) makes %%%d, which exists already or is no %v", k, i.Instr, v, outs[n])
			}
		}
	}
	for _, v := range u.Results {
		if !have(v) {
			return bad("%%%d is a result and is never made", v)
		}
	}
	return nil
}

// String prints the unit, a line per instruction:
//
//	mlp
//	given %0 float32(2, 3), %1 float32(3, 4)
//	%2 float32(2, 4) = MatMul(transA=false, transB=false) %0 %1
//	results %2
func (u *Unit) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\ngiven", u.Name)
	for k, v := range u.Given {
		fmt.Fprintf(&b, "%s %%%d %v", sep(k), v, u.Types[v])
	}
	b.WriteString("\n")
	for _, i := range u.Insts {
		for k, v := range i.Out {
			fmt.Fprintf(&b, "%s%%%d %v", strings.TrimPrefix(sep(k)+" ", " "), v, u.Types[v])
		}
		fmt.Fprintf(&b, " = %v", i.Instr)
		for _, v := range i.In {
			fmt.Fprintf(&b, " %%%d", v)
		}
		b.WriteString("\n")
	}
	b.WriteString("results")
	for k, v := range u.Results {
		fmt.Fprintf(&b, "%s %%%d", sep(k), v)
	}
	return b.String() + "\n"
}

func sep(k int) string {
	if k == 0 {
		return ""
	}
	return ","
}
