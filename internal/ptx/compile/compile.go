package compile

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/weft-project/weft/internal/ptx/simt"
	"github.com/weft-project/weft/internal/ptx/syntax"
)

type symKind uint8

const (
	symReg symKind = iota
	symPred
	symConst // an address in shared memory
	symGlobal
	symDynamic
	symParam // of the kernel
	symLocal // also a parameter of a function that is called
)

// symbol is what a name means.
type symbol struct {
	kind  symKind
	index int // register, address, offset, or variable of the module
	typ   syntax.Type
	count int // of a family of registers; made when they are used
}

type scope struct {
	up       *scope
	function bool // names above are the module's
	names    map[string]symbol
	labels   map[string]int
	pending  []fixup
}

type fixup struct {
	op    int
	label string
	line  int
}

// compiler makes one kernel of an entry. Functions that it calls are put in its place.
type compiler struct {
	src     *syntax.Source
	metered bool
	k       *simt.Kernel
	at      *scope
	consts  map[uint64]int
	globals map[simt.GlobalAt]int // registers of addresses, by what they are but for the register
	dynamic int                   // the register that holds where dynamic shared memory begins, or -1
	depth   int
	seen    int // statements, those of called functions at every call

	marks  []mark
	pinned []bool // registers that hold something from the beginning
	places []int  // in the second run: where registers lie
}

// Bounds of a kernel.
const (
	maxOps   = 1 << 20
	maxRegs  = 1 << 16
	maxLocal = 512 << 10
)

// Kernel compiles an entry of a module, which is to be linked where it is used. A metered one tells
// its block's meter what it asks of memory.
func Kernel(src *syntax.Source, f *syntax.Function, metered bool) (*simt.Kernel, error) {
	c := &compiler{src: src, metered: metered}
	if err := c.entry(f); err != nil {
		return nil, err
	}
	c.places = places(c.k.Code, c.marks, len(c.k.Template), c.pinned)
	if c.places == nil {
		return c.k, nil
	}
	before := c.k.Template
	if err := c.entry(f); err != nil {
		return nil, err
	}
	n := 0
	for _, at := range c.places {
		n = max(n, at+1)
	}
	c.k.Template = slices.Repeat([]uint64{simt.Poison}, n)
	for r, at := range c.places {
		if c.pinned[r] {
			c.k.Template[at] = before[r]
		}
	}
	for k := range c.k.Special {
		c.k.Special[k].Reg = c.home(c.k.Special[k].Reg)
	}
	for k := range c.k.Globals {
		c.k.Globals[k].Reg = c.home(c.k.Globals[k].Reg)
	}
	return c.k, nil
}

// entry compiles an entry from its beginning.
func (c *compiler) entry(f *syntax.Function) error {
	k := &simt.Kernel{Name: f.Name, Threads: f.Threads, Granule: 4}
	if c.k != nil { // it is as long as it was the first time
		k.Code, k.Text = make([]simt.Op, 0, len(c.k.Code)), c.k.Text[:0]
	}
	c.k, c.at, c.consts, c.globals, c.dynamic, c.depth, c.seen = k, nil, map[uint64]int{}, map[simt.GlobalAt]int{}, -1, 0, 0
	c.marks, c.pinned = nil, nil
	c.push(true)
	for _, v := range f.Params {
		at := (k.ParamBytes + v.Align - 1) &^ (v.Align - 1)
		if k.ParamBytes = at + v.Bytes; k.ParamBytes > 32764 {
			return fmt.Errorf("line %d: more than 32764 bytes of parameters", v.Line)
		}
		k.Params = append(k.Params, simt.Param{At: at, Size: v.Bytes})
		c.at.names[v.Name] = symbol{kind: symParam, index: at, typ: v.Elem}
	}
	if err := c.body(f); err != nil {
		return err
	}
	c.emit(simt.Op{Kind: simt.OpExit}, &syntax.Statement{Line: f.Line, Text: "ret;"})
	if err := c.pop(len(k.Code)); err != nil {
		return err
	}
	k.Static = (k.Static + 15) &^ 15
	if c.dynamic >= 0 {
		k.Template[c.dynamic] = uint64(k.Static)
	}
	return nil
}

// home is where a register lies.
func (c *compiler) home(r int) int {
	if c.places == nil {
		return r
	}
	return c.places[r]
}

// reads and writes note what the next instruction does with a register, and say where it lies.
func (c *compiler) reads(r int) int { return c.uses(r, false) }

func (c *compiler) writes(r int) int { return c.uses(r, true) }

func (c *compiler) uses(r int, def bool) int {
	if c.places == nil {
		c.marks = append(c.marks, mark{int32(len(c.k.Code)), int32(r), def})
	}
	return c.home(r)
}

// body compiles statements.
func (c *compiler) body(f *syntax.Function) error {
	for i := range f.Body {
		s := &f.Body[i]
		if err := c.statement(f, s); err != nil {
			return err
		}
		if c.seen++; c.seen > maxOps || len(c.k.Template) > maxRegs {
			return fmt.Errorf("line %d: %s is too large with all that it calls", s.Line, f.Name)
		}
	}
	return nil
}

func (c *compiler) statement(f *syntax.Function, s *syntax.Statement) error {
	switch s.Kind {
	case syntax.StmtOpen:
		c.push(false)
	case syntax.StmtClose:
		return c.pop(-1)
	case syntax.StmtLabel:
		c.at.labels[s.Name] = len(c.k.Code)
	case syntax.StmtRegs:
		for _, d := range s.Regs {
			sym := symbol{kind: symReg, typ: d.Typ, count: d.Count, index: -1}
			if d.Typ.Kind == 'p' {
				sym.kind = symPred
			}
			c.at.names[d.Name] = sym
		}
	case syntax.StmtVar:
		return c.declare(s.Var)
	case syntax.StmtInstr:
		err := c.instruction(f, s)
		if err != nil && s.Line > 0 {
			return fmt.Errorf("%s, line %d: %q: %w", f.Name, s.Line, simt.Origin{Text: s.Text}, err)
		}
		return err
	}
	return nil
}

func (c *compiler) push(function bool) {
	c.at = &scope{up: c.at, function: function, names: map[string]symbol{}, labels: map[string]int{}}
}

// pop ends a scope: branches to its labels are known now, others are the scope's around it. At a
// function's end it is where ret goes.
func (c *compiler) pop(end int) error {
	s := c.at
	c.at = s.up
	for _, f := range s.pending {
		target, ok := s.labels[f.label]
		switch {
		case f.label == "" && s.function:
			target = end
		case !ok && s.function:
			return fmt.Errorf("line %d: no label %s", f.line, f.label)
		case !ok:
			c.at.pending = append(c.at.pending, f)
			continue
		}
		c.k.Code[f.op].Target = int32(target)
	}
	return nil
}

func (c *compiler) emit(o simt.Op, s *syntax.Statement) {
	if o.Pred == 0 && s.Pred == "" {
		o.Pred = -1
	}
	c.k.Code = append(c.k.Code, o)
	c.k.Text = append(c.k.Text, simt.Origin{Line: s.Line, Text: s.Text})
}

// declare gives a variable of a function its place.
func (c *compiler) declare(v *syntax.Variable) error {
	switch v.Space {
	case "shared":
		c.at.names[v.Name] = c.shared(v)
	case "local", "param":
		at := (c.k.Local + v.Align - 1) &^ (v.Align - 1)
		if c.k.Local = at + v.Bytes; c.k.Local > maxLocal {
			return fmt.Errorf("line %d: more than %d bytes of local memory", v.Line, maxLocal)
		}
		c.at.names[v.Name] = symbol{kind: symLocal, index: at, typ: v.Elem}
	default:
		return fmt.Errorf("line %d: a variable in .%s within a function", v.Line, v.Space)
	}
	return nil
}

func (c *compiler) shared(v *syntax.Variable) symbol {
	if v.Extern {
		if c.dynamic < 0 {
			c.dynamic = c.register()
			c.pinned[c.dynamic] = true
		}
		return symbol{kind: symDynamic, typ: v.Elem}
	}
	at := (c.k.Static + v.Align - 1) &^ (v.Align - 1)
	c.k.Static = at + v.Bytes
	return symbol{kind: symConst, index: at, typ: v.Elem}
}

func (c *compiler) register() int {
	c.k.Template = append(c.k.Template, simt.Poison)
	c.pinned = append(c.pinned, false)
	return len(c.k.Template) - 1
}

// constant gives the register that holds a value.
func (c *compiler) constant(v uint64) int {
	k, ok := c.consts[v]
	if !ok {
		k = c.register()
		c.pinned[k] = true
		c.k.Template[k] = v
		c.consts[v] = k
	}
	return c.reads(k)
}

// global gives the register that holds the address of a variable of the module, or one so far
// behind it. What it is linking says.
func (c *compiler) global(v int, off int64) int {
	g := simt.GlobalAt{Var: v, Off: off}
	k, ok := c.globals[g]
	if !ok {
		k = c.register()
		c.pinned[k] = true
		c.globals[g], g.Reg = k, k
		c.k.Globals = append(c.k.Globals, g)
	}
	return c.reads(k)
}

// lookup finds what a name means, and gives registers their place when they are first used.
func (c *compiler) lookup(name string) (symbol, bool) {
	s := c.at
	for ; s != nil; s = s.up {
		if sym, ok := s.names[name]; ok && sym.count == 0 {
			return c.made(s, name, sym), true
		}
		if stem, n, ok := numbered(name); ok {
			if sym, ok := s.names[stem]; ok && n < sym.count {
				sym.count = 0
				return c.made(s, name, sym), true
			}
		}
		if s.function {
			break
		}
	}
	for k, v := range c.src.Vars {
		switch {
		case v.Name != name:
		case v.Space == "shared":
			sym := c.shared(v)
			s.names[name] = sym
			return sym, true
		default:
			return symbol{kind: symGlobal, index: k}, true
		}
	}
	return symbol{}, false
}

func (c *compiler) made(s *scope, name string, sym symbol) symbol {
	if sym.index < 0 {
		switch sym.kind {
		case symReg:
			sym.index = c.register()
		case symPred:
			sym.index = c.k.Preds
			c.k.Preds++
		}
		s.names[name] = sym
	}
	return sym
}

// numbered cuts %r12 into %r and 12.
func numbered(name string) (stem string, n int, ok bool) {
	i := len(name)
	for i > 0 && name[i-1] >= '0' && name[i-1] <= '9' {
		i--
	}
	digits := name[i:]
	if digits == "" || len(digits) > 7 || len(digits) > 1 && digits[0] == '0' {
		return "", 0, false
	}
	n, err := strconv.Atoi(digits)
	return name[:i], n, err == nil
}
