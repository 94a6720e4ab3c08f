package ptx

import (
	"errors"
	"fmt"
)

// instruction compiles one instruction.
func (c *compiler) instruction(f *function, s *stmt) error {
	var o op
	o.pred = -1
	if s.pred != "" {
		p, flip, err := c.predicate(operand{name: s.pred, not: s.negate})
		if err != nil {
			return err
		}
		o.pred, o.flip = int32(p), flip
	}
	var err error
	switch s.op[0] {
	case "bra":
		if len(s.args) != 1 || s.args[0].kind != operandName {
			return errors.New("expected a label")
		}
		o.kind = opBranch
		c.at.pending = append(c.at.pending, fixup{len(c.k.code), s.args[0].name, s.line})
	case "ret":
		o.kind = opBranch
		if f.entry {
			o.kind = opExit
		} else {
			c.at.pending = append(c.at.pending, fixup{len(c.k.code), "", s.line})
		}
	case "exit":
		o.kind = opExit
	case "trap":
		o.run = func(w *warp, m uint32) { w.failAt(m, 0, "the kernel stops with a trap") }
	case "bar", "barrier":
		err = c.barrier(s, &o)
	case "call":
		return c.call(s, o)
	case "shfl", "vote", "match", "redux", "mma", "ldmatrix", "elect":
		o.kind, o.mask = opSync, -1
		err = c.together(s, &o)
	default:
		o.run, err = c.plain(s)
	}
	if err != nil {
		return err
	}
	c.emit(o, s)
	return nil
}

// plain compiles what every lane does for itself.
func (c *compiler) plain(s *stmt) (exec, error) {
	switch s.op[0] {
	case "membar", "fence", "pragma", "nanosleep", "prefetch", "prefetchu", "discard", "applypriority", "brkpt":
		return func(*warp, uint32) {}, nil
	case "ld", "ldu":
		return c.load(s)
	case "st":
		return c.store(s)
	case "atom", "red":
		return c.atomic(s)
	case "cp":
		return c.async(s)
	case "cvta":
		return c.cvta(s)
	case "isspacep":
		return c.isspacep(s)
	case "cvt":
		return c.cvt(s)
	case "mov":
		return c.mov(s)
	case "activemask":
		d, _, err := c.regs(s, typ{}, 0)
		return func(w *warp, m uint32) { w.each(d, m, uint64(m)) }, err
	case "setp", "set":
		return c.compare(s)
	case "selp":
		return c.selp(s)
	case "slct":
		return c.slct(s)
	case "prmt", "lop3", "shf", "bfi", "bfe", "popc", "clz", "brev", "bfind", "fns", "dp4a", "mul24", "mad24", "sad":
		return c.bits(s)
	case "testp":
		return c.testp(s)
	}
	ts := s.types()
	if len(ts) == 0 {
		return nil, errUnknown
	}
	t := ts[len(ts)-1]
	if t.kind == 'p' {
		return c.logic(s)
	}
	switch op := s.op[0]; {
	case op == "addc", op == "subc", op == "madc", s.has("cc") && (op == "add" || op == "sub" || op == "mad"):
		return c.carried(s, t)
	}
	return c.arithmetic(s, t)
}

// arithmetic compiles what has one type throughout.
func (c *compiler) arithmetic(s *stmt, t typ) (exec, error) {
	switch {
	case t.size == 2 && t.float() || t.pair:
		return c.half(s, t)
	case t == typ{kind: 'f', size: 4}:
		return c.float32(s)
	case t == typ{kind: 'f', size: 8}:
		return c.float64(s)
	case t.kind == 's':
		switch t.size {
		case 2:
			return integers[int16, int64](c, s, t)
		case 4:
			return integers[int32, int64](c, s, t)
		case 8:
			return integers[int64, int64](c, s, t)
		}
	case t.kind == 'u' || t.kind == 'b':
		switch t.size {
		case 2:
			return integers[uint16, uint64](c, s, t)
		case 4:
			return integers[uint32, uint64](c, s, t)
		case 8:
			return integers[uint64, uint64](c, s, t)
		}
	}
	return nil, errUnknown
}

// logic compiles and, or, xor, not of predicates.
func (c *compiler) logic(s *stmt) (exec, error) {
	if len(s.args) < 2 {
		return nil, errUnknown
	}
	d, _, err := c.predicate(s.args[0])
	if err != nil {
		return nil, err
	}
	a, fa, err := c.predicate(s.args[1])
	if err != nil {
		return nil, err
	}
	b, fb := a, fa
	if len(s.args) == 3 {
		if b, fb, err = c.predicate(s.args[2]); err != nil {
			return nil, err
		}
	}
	var f func(x, y uint32) uint32
	switch op := fmt.Sprint(s.op[0], len(s.args)); op {
	case "and3":
		f = func(x, y uint32) uint32 { return x & y }
	case "or3":
		f = func(x, y uint32) uint32 { return x | y }
	case "xor3":
		f = func(x, y uint32) uint32 { return x ^ y }
	case "not2":
		f = func(x, _ uint32) uint32 { return ^x }
	default:
		return nil, errUnknown
	}
	return func(w *warp, m uint32) {
		w.p[d] = w.p[d]&^m | f(w.p[a]^fa, w.p[b]^fb)&m
	}, nil
}

// call puts a function in the place of its call.
func (c *compiler) call(s *stmt, o op) error {
	args := s.args
	var rets []operand
	if len(args) > 0 && args[0].kind == operandList {
		rets, args = args[0].list, args[1:]
	}
	if len(args) == 0 || args[0].kind != operandName {
		return errors.New("expected a function")
	}
	name := args[0].name
	var given []operand
	if len(args) > 1 {
		given = args[1].list
	}
	g := c.src.funcs[name]
	switch {
	case g == nil:
		return fmt.Errorf("%s is not a function; calls by address are not understood", name)
	case !g.defined && name == "__assertfail":
		c.emit(op{pred: o.pred, flip: o.flip, run: func(w *warp, m uint32) { w.failAt(m, 0, "an assertion of the kernel fails") }}, s)
		return nil
	case !g.defined:
		return fmt.Errorf("%s is not defined", name)
	case len(rets) != len(g.ret) || len(given) != len(g.params):
		return fmt.Errorf("%s has %d results and %d parameters", name, len(g.ret), len(g.params))
	case c.depth == 32:
		return fmt.Errorf("%s calls itself, or calls lie too deep", name)
	}
	skip := -1
	if o.pred >= 0 {
		skip = len(c.k.code)
		c.emit(op{kind: opBranch, pred: o.pred, flip: ^o.flip}, s)
	}
	names := map[string]symbol{}
	for k, v := range append(append([]*variable{}, g.ret...), g.params...) {
		o := append(append([]operand{}, rets...), given...)[k]
		sym, ok := c.lookup(o.name)
		if !ok || sym.kind != symLocal {
			return fmt.Errorf("argument %d is no .param variable", k)
		}
		names[v.name] = sym
	}
	c.depth++
	c.push(true)
	for n, sym := range names {
		c.at.names[n] = sym
	}
	if err := c.body(g); err != nil {
		return err
	}
	c.depth--
	if skip >= 0 {
		c.k.code[skip].target = int32(len(c.k.code))
	}
	return c.pop(len(c.k.code))
}
