package ptx

import (
	"fmt"
	"strconv"
)

type symKind uint8

const (
	symReg symKind = iota
	symPred
	symConst // an address
	symDynamic
	symParam // of the kernel
	symLocal // also a parameter of a function that is called
)

// symbol is what a name means.
type symbol struct {
	kind  symKind
	index int // register, address or offset
	typ   typ
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
	src     *source
	globals map[string]uint64
	meter   *Traffic // where the kernel counts; or nil
	k       *kernel
	at      *scope
	consts  map[uint64]int
	dynamic int // the register that holds where dynamic shared memory begins, or -1
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

func kernelOf(src *source, globals map[string]uint64, f *function, meter *Traffic) (*kernel, error) {
	c := &compiler{src: src, globals: globals, meter: meter}
	if err := c.entry(f); err != nil {
		return nil, err
	}
	c.places = places(c.k.code, c.marks, len(c.k.template), c.pinned)
	if c.places == nil {
		return c.k, nil
	}
	before := c.k.template
	if err := c.entry(f); err != nil {
		return nil, err
	}
	n := 0
	for _, at := range c.places {
		n = max(n, at+1)
	}
	c.k.template = make([]lanes, n)
	for k := range c.k.template {
		fillLanes(&c.k.template[k], poison)
	}
	for r, at := range c.places {
		if c.pinned[r] {
			c.k.template[at] = before[r]
		}
	}
	for k := range c.k.special {
		c.k.special[k].reg = c.place(c.k.special[k].reg)
	}
	return c.k, nil
}

// entry compiles an entry from its beginning.
func (c *compiler) entry(f *function) error {
	k := &kernel{name: f.name, threads: f.threads, granule: 4, meter: c.meter}
	c.k, c.at, c.consts, c.dynamic, c.depth, c.seen = k, nil, map[uint64]int{}, -1, 0, 0
	c.marks, c.pinned = nil, nil
	c.push(true)
	for _, v := range f.params {
		at := (k.pbytes + v.align - 1) &^ (v.align - 1)
		if k.pbytes = at + v.bytes; k.pbytes > 32764 {
			return fmt.Errorf("line %d: more than 32764 bytes of parameters", v.line)
		}
		k.params = append(k.params, param{at, v.bytes})
		c.at.names[v.name] = symbol{kind: symParam, index: at, typ: v.elem}
	}
	if err := c.body(f); err != nil {
		return err
	}
	c.emit(op{kind: opExit}, &stmt{line: f.line, text: "ret;"})
	if err := c.pop(len(k.code)); err != nil {
		return err
	}
	k.static = (k.static + 15) &^ 15
	if c.dynamic >= 0 {
		fillLanes(&k.template[c.dynamic], uint64(k.static))
	}
	return nil
}

// place is where a register lies.
func (c *compiler) place(r int) int {
	if c.places == nil {
		return r
	}
	return c.places[r]
}

// reads and writes note what the next instruction does with a register, and say where it lies.
func (c *compiler) reads(r int) int {
	c.marks = append(c.marks, mark{int32(len(c.k.code)), int32(r), false})
	return c.place(r)
}

func (c *compiler) writes(r int) int {
	c.marks = append(c.marks, mark{int32(len(c.k.code)), int32(r), true})
	return c.place(r)
}

// body compiles statements.
func (c *compiler) body(f *function) error {
	for i := range f.body {
		s := &f.body[i]
		if err := c.statement(f, s); err != nil {
			return err
		}
		if c.seen++; c.seen > maxOps || len(c.k.template) > maxRegs {
			return fmt.Errorf("line %d: %s is too large with all that it calls", s.line, f.name)
		}
	}
	return nil
}

func (c *compiler) statement(f *function, s *stmt) error {
	switch s.kind {
	case stmtOpen:
		c.push(false)
	case stmtClose:
		return c.pop(-1)
	case stmtLabel:
		c.at.labels[s.name] = len(c.k.code)
	case stmtRegs:
		for _, d := range s.regs {
			sym := symbol{kind: symReg, typ: d.typ, count: d.count, index: -1}
			if d.typ.kind == 'p' {
				sym.kind = symPred
			}
			c.at.names[d.name] = sym
		}
	case stmtVar:
		return c.declare(s.v)
	case stmtInstr:
		err := c.instruction(f, s)
		if err != nil && s.line > 0 {
			return fmt.Errorf("%s, line %d: %q: %w", f.name, s.line, s.text, err)
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
		c.k.code[f.op].target = int32(target)
	}
	return nil
}

func (c *compiler) emit(o op, s *stmt) {
	if o.pred == 0 && s.pred == "" {
		o.pred = -1
	}
	c.k.code = append(c.k.code, o)
	c.k.text = append(c.k.text, origin{s.line, s.text})
}

// declare gives a variable of a function its place.
func (c *compiler) declare(v *variable) error {
	switch v.space {
	case "shared":
		c.at.names[v.name] = c.shared(v)
	case "local", "param":
		at := (c.k.local + v.align - 1) &^ (v.align - 1)
		if c.k.local = at + v.bytes; c.k.local > maxLocal {
			return fmt.Errorf("line %d: more than %d bytes of local memory", v.line, maxLocal)
		}
		c.at.names[v.name] = symbol{kind: symLocal, index: at, typ: v.elem}
	default:
		return fmt.Errorf("line %d: a variable in .%s within a function", v.line, v.space)
	}
	return nil
}

func (c *compiler) shared(v *variable) symbol {
	if v.extern {
		if c.dynamic < 0 {
			c.dynamic = c.register()
			c.pinned[c.dynamic] = true
		}
		return symbol{kind: symDynamic, typ: v.elem}
	}
	at := (c.k.static + v.align - 1) &^ (v.align - 1)
	c.k.static = at + v.bytes
	return symbol{kind: symConst, index: at, typ: v.elem}
}

func (c *compiler) register() int {
	c.k.template = append(c.k.template, lanes{})
	c.pinned = append(c.pinned, false)
	return len(c.k.template) - 1
}

func fillLanes(r *lanes, v uint64) {
	for l := range r {
		r[l] = v
	}
}

// constant gives the register that holds a value.
func (c *compiler) constant(v uint64) int {
	k, ok := c.consts[v]
	if !ok {
		k = c.register()
		c.pinned[k] = true
		fillLanes(&c.k.template[k], v)
		c.consts[v] = k
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
	if at, ok := c.globals[name]; ok {
		return symbol{kind: symConst, index: int(at)}, true
	}
	for _, v := range c.src.vars {
		if v.name == name && v.space == "shared" {
			sym := c.shared(v)
			s.names[name] = sym
			return sym, true
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
			sym.index = c.k.preds
			c.k.preds++
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
