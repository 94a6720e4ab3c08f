package syntax

import "strings"

// Source is a parsed module.
type Source struct {
	Target int  // 75 of sm_75
	Exact  bool // of sm_90a: no other will do
	Funcs  map[string]*Function
	Vars   []*Variable
}

// Variable is memory with a name: of the module, of a function, or a parameter.
type Variable struct {
	Name   string
	Space  string // "global", "const", "shared", "local", "param"
	Align  int
	Elem   Type
	Bytes  int
	Extern bool // extern shared: as many bytes as the launch says
	Init   []byte
	Line   int
}

// Function is an .entry or a .func.
type Function struct {
	Name        string
	Entry       bool
	Defined     bool
	Ret, Params []*Variable
	Threads     int // at most, or 0
	Body        []Statement
	Line        int
}

type stmtKind uint8

// Kinds of statements.
const (
	StmtInstr stmtKind = iota
	StmtLabel
	StmtOpen
	StmtClose
	StmtRegs
	StmtVar
)

// Statement is a statement of a body.
type Statement struct {
	Kind stmtKind
	Line int
	Text string // as written, for instructions
	Name string // the label
	Var  *Variable
	Regs []Registers

	Pred   string // predicate, or ""
	Negate bool
	Op     []string // the opcode, cut at its dots
	Args   []Operand
}

// Registers declares %name, or with count > 0 %name0 … %name(count-1).
type Registers struct {
	Name  string
	Count int
	Typ   Type
}

type operandKind uint8

// Kinds of operands.
const (
	OperandName operandKind = iota // a register, a variable, a label
	OperandImm
	OperandAddr // [name+off] or [imm]
	OperandVec  // {a, b, …}
	OperandList // (a, b, …), of a call
)

// Operand is one operand of an instruction.
type Operand struct {
	Kind   operandKind
	Name   string
	Second string // of p|q
	Not    bool   // !p
	Imm    uint64
	float  uint8 // bytes of a float literal, or 0
	Off    int64
	List   []Operand
}

// Type is a type of the instruction set.
type Type struct {
	Kind byte // 'u', 's', 'f', 'b', 'p' (predicate), 'g' (bf16), 't' (tf32)
	Size int  // bytes
	Pair bool // x2: two of half the size
}

// Signed says whether it is a type of whole numbers with a sign.
func (t Type) Signed() bool { return t.Kind == 's' }

// Float says whether it is a type of floating point numbers.
func (t Type) Float() bool { return t.Kind == 'f' || t.Kind == 'g' || t.Kind == 't' }

// typeOf reads a type's name, without its dot.
func typeOf(s string) (t Type, ok bool) {
	name, pair := strings.CutSuffix(s, "x2")
	switch name {
	case "u8", "s8", "b8":
		return Type{Kind: name[0], Size: 1}, !pair
	case "u16", "s16", "b16":
		return Type{Kind: name[0], Size: 2}, !pair
	case "u32", "s32", "b32", "f32":
		return Type{Kind: name[0], Size: 4}, !pair
	case "u64", "s64", "b64", "f64":
		return Type{Kind: name[0], Size: 8}, !pair
	case "f16":
		t = Type{Kind: 'f', Size: 2}
	case "bf16":
		t = Type{Kind: 'g', Size: 2}
	case "tf32":
		return Type{Kind: 't', Size: 4}, !pair
	case "pred":
		return Type{Kind: 'p', Size: 1}, !pair
	default:
		return Type{}, false
	}
	if pair {
		t.Size, t.Pair = 4, true
	}
	return t, true
}

// Has says whether an opcode has a modifier.
func (s *Statement) Has(modifier string) bool {
	for _, m := range s.Op[1:] {
		if m == modifier {
			return true
		}
	}
	return false
}

// OneOf gives the first of some modifiers that an opcode has, or "".
func (s *Statement) OneOf(modifiers ...string) string {
	for _, m := range modifiers {
		if s.Has(m) {
			return m
		}
	}
	return ""
}

// Types gives the types of an opcode, in order.
func (s *Statement) Types() (out []Type) {
	for _, m := range s.Op[1:] {
		if t, ok := typeOf(m); ok {
			out = append(out, t)
		}
	}
	return out
}
