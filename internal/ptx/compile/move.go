package compile

import (
	"errors"

	"github.com/weft-project/weft/internal/ptx/simt"
	"github.com/weft-project/weft/internal/ptx/syntax"
)

// mov compiles moves, with packing and unpacking, of predicates and of addresses.
func (c *compiler) mov(s *syntax.Statement) (simt.Exec, error) {
	ts := s.Types()
	if len(s.Args) != 2 || len(ts) != 1 {
		return nil, errUnknown
	}
	t := ts[0]
	d, a := s.Args[0], s.Args[1]
	switch {
	case t.Kind == 'p':
		return c.movPred(d, a)
	case d.Kind == syntax.OperandVec:
		return c.unpack(d, a, t)
	case a.Kind == syntax.OperandVec:
		return c.pack(d, a, t)
	}
	to, err := c.out(d)
	if err != nil {
		return nil, err
	}
	switch a.Name {
	case "%clock", "%clock64", "%clock_hi", "%globaltimer", "%globaltimer_lo":
		return func(w *simt.Warp, m uint32) { w.Each(to, m, 0) }, nil
	}
	from, err := c.in(a, t)
	return copy64(to, from), err
}

func (c *compiler) movPred(d, a syntax.Operand) (simt.Exec, error) {
	to, _, err := c.predicate(d)
	if err != nil {
		return nil, err
	}
	if a.Kind == syntax.OperandImm {
		v := -uint32(a.Imm & 1)
		return func(w *simt.Warp, m uint32) { w.Preds[to] = w.Preds[to]&^m | v&m }, nil
	}
	from, flip, err := c.predicate(a)
	return func(w *simt.Warp, m uint32) { w.Preds[to] = w.Preds[to]&^m | (w.Preds[from]^flip)&m }, err
}

// unpack cuts a register into parts, the lowest first.
func (c *compiler) unpack(d, a syntax.Operand, t syntax.Type) (simt.Exec, error) {
	from, err := c.in(a, t)
	if err != nil {
		return nil, err
	}
	n := len(d.List)
	if n != 2 && n != 4 || t.Size < n {
		return nil, errors.New("parts do not fit")
	}
	to := make([]int, n)
	for k, e := range d.List {
		if to[k], err = c.out(e); err != nil {
			return nil, err
		}
	}
	part := syntax.Type{Kind: 'u', Size: t.Size / n}
	return func(w *simt.Warp, m uint32) {
		for l := range 32 {
			if m>>l&1 != 0 {
				v := w.Regs[from][l]
				for k, r := range to {
					w.Regs[r][l] = extend(v>>(8*part.Size*k), part)
				}
			}
		}
	}, nil
}

// pack makes a register of parts, the lowest first.
func (c *compiler) pack(d, a syntax.Operand, t syntax.Type) (simt.Exec, error) {
	to, err := c.out(d)
	if err != nil {
		return nil, err
	}
	n := len(a.List)
	if n != 2 && n != 4 || t.Size < n {
		return nil, errors.New("parts do not fit")
	}
	part := syntax.Type{Kind: 'u', Size: t.Size / n}
	from := make([]int, n)
	for k, e := range a.List {
		if from[k], err = c.in(e, part); err != nil {
			return nil, err
		}
	}
	return func(w *simt.Warp, m uint32) {
		for l := range 32 {
			if m>>l&1 != 0 {
				var v uint64
				for k, r := range from {
					v |= extend(w.Regs[r][l], part) << (8 * part.Size * k)
				}
				w.Regs[to][l] = v
			}
		}
	}, nil
}
