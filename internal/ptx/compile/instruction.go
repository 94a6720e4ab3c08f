package compile

import (
	"errors"
	"fmt"

	"github.com/weft-project/weft/internal/ptx/simt"
	"github.com/weft-project/weft/internal/ptx/syntax"
)

// instruction compiles one instruction.
func (c *compiler) instruction(f *syntax.Function, s *syntax.Statement) error {
	var o simt.Op
	o.Pred = -1
	if s.Pred != "" {
		p, flip, err := c.predicate(syntax.Operand{Name: s.Pred, Not: s.Negate})
		if err != nil {
			return err
		}
		o.Pred, o.Flip = int32(p), flip
	}
	var err error
	switch s.Op[0] {
	case "bra":
		if len(s.Args) != 1 || s.Args[0].Kind != syntax.OperandName {
			return errors.New("expected a label")
		}
		o.Kind = simt.OpBranch
		c.at.pending = append(c.at.pending, fixup{len(c.k.Code), s.Args[0].Name, s.Line})
	case "ret":
		o.Kind = simt.OpBranch
		if f.Entry {
			o.Kind = simt.OpExit
		} else {
			c.at.pending = append(c.at.pending, fixup{len(c.k.Code), "", s.Line})
		}
	case "exit":
		o.Kind = simt.OpExit
	case "trap":
		o.Run = func(w *simt.Warp, m uint32) { w.FailAt(m, 0, "the kernel stops with a trap") }
	case "bar", "barrier":
		err = c.barrier(s, &o)
	case "call":
		return c.call(s, o)
	case "shfl", "vote", "match", "redux", "mma", "ldmatrix", "elect", "wgmma":
		o.Kind, o.Mask = simt.OpSync, -1
		err = c.together(s, &o)
	case "mbarrier":
		if s.Has("try_wait") || s.Has("test_wait") {
			err = c.waits(s, &o)
		} else {
			err = c.mbarrier(s, &o)
		}
	default:
		o.Run, err = c.plain(s)
	}
	if err != nil {
		return err
	}
	c.emit(o, s)
	return nil
}

// plain compiles what every lane does for itself.
func (c *compiler) plain(s *syntax.Statement) (simt.Exec, error) {
	switch s.Op[0] {
	case "fence":
		if s.Has("proxy") && s.Has("async") {
			return func(w *simt.Warp, _ uint32) { w.FenceProxy() }, nil
		}
		return func(*simt.Warp, uint32) {}, nil
	case "setmaxnreg":
		return c.setmaxnreg(s)
	case "membar", "pragma", "nanosleep", "prefetch", "prefetchu", "discard", "applypriority", "brkpt":
		return func(*simt.Warp, uint32) {}, nil
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
		d, _, err := c.regs(s, syntax.Type{}, 0)
		return func(w *simt.Warp, m uint32) { w.Each(d, m, uint64(m)) }, err
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
	ts := s.Types()
	if len(ts) == 0 {
		return nil, errUnknown
	}
	t := ts[len(ts)-1]
	if t.Kind == 'p' {
		return c.logic(s)
	}
	switch op := s.Op[0]; {
	case op == "addc", op == "subc", op == "madc", s.Has("cc") && (op == "add" || op == "sub" || op == "mad"):
		return c.carried(s, t)
	}
	return c.arithmetic(s, t)
}

// arithmetic compiles what has one type throughout.
func (c *compiler) arithmetic(s *syntax.Statement, t syntax.Type) (simt.Exec, error) {
	switch {
	case t.Size == 2 && t.Float() || t.Pair:
		return c.half(s, t)
	case t == syntax.Type{Kind: 'f', Size: 4}:
		return c.float32(s)
	case t == syntax.Type{Kind: 'f', Size: 8}:
		return c.float64(s)
	case t.Kind == 's':
		switch t.Size {
		case 2:
			return integers[int16, int64](c, s, t)
		case 4:
			return integers[int32, int64](c, s, t)
		case 8:
			return integers[int64, int64](c, s, t)
		}
	case t.Kind == 'u' || t.Kind == 'b':
		switch t.Size {
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
func (c *compiler) logic(s *syntax.Statement) (simt.Exec, error) {
	if len(s.Args) < 2 {
		return nil, errUnknown
	}
	d, _, err := c.predicate(s.Args[0])
	if err != nil {
		return nil, err
	}
	a, fa, err := c.predicate(s.Args[1])
	if err != nil {
		return nil, err
	}
	b, fb := a, fa
	if len(s.Args) == 3 {
		if b, fb, err = c.predicate(s.Args[2]); err != nil {
			return nil, err
		}
	}
	var f func(x, y uint32) uint32
	switch op := fmt.Sprint(s.Op[0], len(s.Args)); op {
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
	return func(w *simt.Warp, m uint32) {
		w.Preds[d] = w.Preds[d]&^m | f(w.Preds[a]^fa, w.Preds[b]^fb)&m
	}, nil
}

// call puts a function in the place of its call.
func (c *compiler) call(s *syntax.Statement, o simt.Op) error {
	args := s.Args
	var rets []syntax.Operand
	if len(args) > 0 && args[0].Kind == syntax.OperandList {
		rets, args = args[0].List, args[1:]
	}
	if len(args) == 0 || args[0].Kind != syntax.OperandName {
		return errors.New("expected a function")
	}
	name := args[0].Name
	var given []syntax.Operand
	if len(args) > 1 {
		given = args[1].List
	}
	g := c.src.Funcs[name]
	switch {
	case g == nil:
		return fmt.Errorf("%s is not a function; calls by address are not understood", name)
	case !g.Defined && name == "__assertfail":
		c.emit(simt.Op{Pred: o.Pred, Flip: o.Flip, Run: func(w *simt.Warp, m uint32) { w.FailAt(m, 0, "an assertion of the kernel fails") }}, s)
		return nil
	case !g.Defined:
		return fmt.Errorf("%s is not defined", name)
	case len(rets) != len(g.Ret) || len(given) != len(g.Params):
		return fmt.Errorf("%s has %d results and %d parameters", name, len(g.Ret), len(g.Params))
	case c.depth == 32:
		return fmt.Errorf("%s calls itself, or calls lie too deep", name)
	}
	skip := -1
	if o.Pred >= 0 {
		skip = len(c.k.Code)
		c.emit(simt.Op{Kind: simt.OpBranch, Pred: o.Pred, Flip: ^o.Flip}, s)
	}
	names := map[string]symbol{}
	for k, v := range append(append([]*syntax.Variable{}, g.Ret...), g.Params...) {
		o := append(append([]syntax.Operand{}, rets...), given...)[k]
		sym, ok := c.lookup(o.Name)
		if !ok || sym.kind != symLocal {
			return fmt.Errorf("argument %d is no .param variable", k)
		}
		names[v.Name] = sym
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
		c.k.Code[skip].Target = int32(len(c.k.Code))
	}
	return c.pop(len(c.k.Code))
}
