package ptx

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
func typeOf(s string) (typ, bool) {
	t, ok := types[s]
	return t, ok
}

var types = map[string]typ{
	"u8": {kind: 'u', size: 1}, "u16": {kind: 'u', size: 2}, "u32": {kind: 'u', size: 4}, "u64": {kind: 'u', size: 8},
	"s8": {kind: 's', size: 1}, "s16": {kind: 's', size: 2}, "s32": {kind: 's', size: 4}, "s64": {kind: 's', size: 8},
	"b8": {kind: 'b', size: 1}, "b16": {kind: 'b', size: 2}, "b32": {kind: 'b', size: 4}, "b64": {kind: 'b', size: 8},
	"f16": {kind: 'f', size: 2}, "f32": {kind: 'f', size: 4}, "f64": {kind: 'f', size: 8}, "pred": {kind: 'p', size: 1},
	"bf16": {kind: 'g', size: 2}, "tf32": {kind: 't', size: 4},
	"f16x2": {kind: 'f', size: 4, pair: true}, "bf16x2": {kind: 'g', size: 4, pair: true},
}
