package ptx

import "strings"

// source is a parsed module.
type source struct {
	target int // 75 of sm_75
	funcs  map[string]*function
	vars   []*variable
}

// variable is memory with a name: of the module, of a function, or a parameter.
type variable struct {
	name   string
	space  string // "global", "const", "shared", "local", "param"
	align  int
	elem   typ
	bytes  int
	extern bool // extern shared: as many bytes as the launch says
	init   []byte
	line   int
}

// function is an .entry or a .func.
type function struct {
	name        string
	entry       bool
	defined     bool
	ret, params []*variable
	threads     int // at most, or 0
	body        []stmt
	line        int
}

type stmtKind uint8

const (
	stmtInstr stmtKind = iota
	stmtLabel
	stmtOpen
	stmtClose
	stmtRegs
	stmtVar
)

// stmt is a statement of a body.
type stmt struct {
	kind stmtKind
	line int
	text string // as written, for instructions
	name string // the label
	v    *variable
	regs []regDecl

	pred   string // predicate, or ""
	negate bool
	op     []string // the opcode, cut at its dots
	args   []operand
}

// regDecl declares %name, or with count > 0 %name0 … %name(count-1).
type regDecl struct {
	name  string
	count int
	typ   typ
}

type operandKind uint8

const (
	operandName operandKind = iota // a register, a variable, a label
	operandImm
	operandAddr // [name+off] or [imm]
	operandVec  // {a, b, …}
	operandList // (a, b, …), of a call
)

type operand struct {
	kind   operandKind
	name   string
	second string // of p|q
	not    bool   // !p
	imm    uint64
	float  uint8 // bytes of a float literal, or 0
	off    int64
	list   []operand
}

// typ is a type of the instruction set.
type typ struct {
	kind byte // 'u', 's', 'f', 'b', 'p' (predicate), 'g' (bf16), 't' (tf32)
	size int  // bytes
	pair bool // x2: two of half the size
}

func (t typ) signed() bool { return t.kind == 's' }
func (t typ) float() bool  { return t.kind == 'f' || t.kind == 'g' || t.kind == 't' }

// typeOf reads a type's name, without its dot.
func typeOf(s string) (t typ, ok bool) {
	name, pair := strings.CutSuffix(s, "x2")
	switch name {
	case "u8", "s8", "b8":
		return typ{kind: name[0], size: 1}, !pair
	case "u16", "s16", "b16":
		return typ{kind: name[0], size: 2}, !pair
	case "u32", "s32", "b32", "f32":
		return typ{kind: name[0], size: 4}, !pair
	case "u64", "s64", "b64", "f64":
		return typ{kind: name[0], size: 8}, !pair
	case "f16":
		t = typ{kind: 'f', size: 2}
	case "bf16":
		t = typ{kind: 'g', size: 2}
	case "tf32":
		return typ{kind: 't', size: 4}, !pair
	case "pred":
		return typ{kind: 'p', size: 1}, !pair
	default:
		return typ{}, false
	}
	if pair {
		t.size, t.pair = 4, true
	}
	return t, true
}

// has says whether an opcode has a modifier.
func (s *stmt) has(modifier string) bool {
	for _, m := range s.op[1:] {
		if m == modifier {
			return true
		}
	}
	return false
}

// oneOf gives the first of some modifiers that an opcode has, or "".
func (s *stmt) oneOf(modifiers ...string) string {
	for _, m := range modifiers {
		if s.has(m) {
			return m
		}
	}
	return ""
}

// types gives the types of an opcode, in order.
func (s *stmt) types() (out []typ) {
	for _, m := range s.op[1:] {
		if t, ok := typeOf(m); ok {
			out = append(out, t)
		}
	}
	return out
}
