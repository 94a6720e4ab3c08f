package gen

import (
	"fmt"
	"math"
	"strings"

	"github.com/weft-project/weft/device"
)

// emitter writes the body of a kernel. A register is made once, by [emitter.op]; what changes in a
// loop is set again by [emitter.set].
type emitter struct {
	body   strings.Builder
	count  [5]int // registers of each kind
	labels int
	params []Param // what the addresses of the kernel's parameters are
	shared int     // bytes of static shared memory
}

// kinds are the PTX types of registers, in the order of emitter.count, and their names.
var kinds = [5]struct{ typ, name string }{{"pred", "p"}, {"f32", "f"}, {"f64", "d"}, {"b32", "r"}, {"b64", "q"}}

// kindOf is the kind of register that holds a PTX type.
func kindOf(typ string) int {
	switch typ {
	case "pred":
		return 0
	case "f32":
		return 1
	case "f64":
		return 2
	case "b32", "u32", "s32":
		return 3
	}
	return 4
}

// made is the kind that an operation makes.
func made(op string) int {
	parts := strings.Split(op, ".")
	last := len(parts) - 1
	switch {
	case parts[0] == "setp":
		return 0
	case op == rounding:
		return kindOf("b32")
	case parts[0] == "cvt":
		return kindOf(parts[last-1])
	case parts[0] == "mul" && parts[1] == "wide":
		return kindOf("b64")
	}
	return kindOf(parts[last])
}

// reg makes a register of a PTX type.
func (e *emitter) reg(typ string) string {
	k := kindOf(typ)
	e.count[k]++
	return fmt.Sprintf("%%%s%d", kinds[k].name, e.count[k])
}

// op computes into a new register.
func (e *emitter) op(op string, args ...string) string {
	k := made(op)
	e.count[k]++
	r := fmt.Sprintf("%%%s%d", kinds[k].name, e.count[k])
	e.set(r, op, args...)
	return r
}

// set computes into a register that is there.
func (e *emitter) set(r, op string, args ...string) {
	e.line("%s %s, %s;", op, r, strings.Join(args, ", "))
}

func (e *emitter) line(format string, args ...any) {
	e.body.WriteByte('\t')
	fmt.Fprintf(&e.body, format, args...)
	e.body.WriteByte('\n')
}

// label names a place in the text; the place itself is written by [emitter.here].
func (e *emitter) label() string {
	e.labels++
	return fmt.Sprintf("L%d", e.labels)
}

func (e *emitter) here(label string) { fmt.Fprintf(&e.body, "%s:\n", label) }

// global is the address that a parameter holds.
func (e *emitter) global(p Param) string {
	for k, q := range e.params {
		if p == q {
			return fmt.Sprintf("%%a%d", k)
		}
	}
	e.params = append(e.params, p)
	return fmt.Sprintf("%%a%d", len(e.params)-1)
}

// text is the kernel from its parameters on, for as many threads.
func (e *emitter) text(threads int) string {
	var b strings.Builder
	b.WriteString("(")
	for k := range e.params {
		if k > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, "\n\t.param .u64 p%d", k)
	}
	fmt.Fprintf(&b, "\n)\n.maxntid %d, 1, 1\n{\n", threads)
	for k, n := range e.count {
		if n > 0 {
			fmt.Fprintf(&b, "\t.reg .%s %%%s<%d>;\n", kinds[k].typ, kinds[k].name, n+1)
		}
	}
	if len(e.params) > 0 {
		fmt.Fprintf(&b, "\t.reg .b64 %%a<%d>;\n", len(e.params))
	}
	if e.shared > 0 {
		fmt.Fprintf(&b, "\t.shared .align 16 .b8 sm[%d];\n", e.shared)
	}
	for k := range e.params {
		fmt.Fprintf(&b, "\tld.param.u64 %%a%d, [p%d];\n\tcvta.to.global.u64 %%a%d, %%a%d;\n", k, k, k, k)
	}
	b.WriteString(e.body.String())
	b.WriteString("\tret;\n}\n")
	return b.String()
}

// f32 and f64 are constants.
func f32(v float64) string { return fmt.Sprintf("0f%08X", math.Float32bits(float32(v))) }
func f64(v float64) string { return fmt.Sprintf("0d%016X", math.Float64bits(v)) }

func num(n int) string { return fmt.Sprint(n) }

// bitsOf is the PTX type of registers that move elements of a dtype.
func bitsOf(d device.Dtype) string {
	if d.Size() == 8 {
		return "b64"
	}
	return "b32"
}

// typeOf is the PTX type that computes in a dtype.
func typeOf(d device.Dtype) string {
	switch d {
	case device.Float32:
		return "f32"
	case device.Float64:
		return "f64"
	case device.Int32:
		return "s32"
	}
	return "s64"
}
