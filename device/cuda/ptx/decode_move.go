package ptx

import "errors"

// mov compiles moves, with packing and unpacking, of predicates and of addresses.
func (c *compiler) mov(s *stmt) (exec, error) {
	ts := s.types()
	if len(s.args) != 2 || len(ts) != 1 {
		return nil, errUnknown
	}
	t := ts[0]
	d, a := s.args[0], s.args[1]
	switch {
	case t.kind == 'p':
		return c.movPred(d, a)
	case d.kind == operandVec:
		return c.unpack(d, a, t)
	case a.kind == operandVec:
		return c.pack(d, a, t)
	}
	to, err := c.out(d)
	if err != nil {
		return nil, err
	}
	switch a.name {
	case "%clock", "%clock64", "%clock_hi", "%globaltimer", "%globaltimer_lo":
		return func(w *warp, m uint32) { w.each(to, m, 0) }, nil
	}
	from, err := c.in(a, t)
	return copy64(to, from), err
}

func (c *compiler) movPred(d, a operand) (exec, error) {
	to, _, err := c.predicate(d)
	if err != nil {
		return nil, err
	}
	if a.kind == operandImm {
		v := -uint32(a.imm & 1)
		return func(w *warp, m uint32) { w.p[to] = w.p[to]&^m | v&m }, nil
	}
	from, flip, err := c.predicate(a)
	return func(w *warp, m uint32) { w.p[to] = w.p[to]&^m | (w.p[from]^flip)&m }, err
}

// unpack cuts a register into parts, the lowest first.
func (c *compiler) unpack(d, a operand, t typ) (exec, error) {
	from, err := c.in(a, t)
	if err != nil {
		return nil, err
	}
	n := len(d.list)
	if n != 2 && n != 4 || t.size < n {
		return nil, errors.New("parts do not fit")
	}
	to := make([]int, n)
	for k, e := range d.list {
		if to[k], err = c.out(e); err != nil {
			return nil, err
		}
	}
	part := typ{kind: 'u', size: t.size / n}
	return func(w *warp, m uint32) {
		for l := range 32 {
			if m>>l&1 != 0 {
				v := w.r[from][l]
				for k, r := range to {
					w.r[r][l] = extend(v>>(8*part.size*k), part)
				}
			}
		}
	}, nil
}

// pack makes a register of parts, the lowest first.
func (c *compiler) pack(d, a operand, t typ) (exec, error) {
	to, err := c.out(d)
	if err != nil {
		return nil, err
	}
	n := len(a.list)
	if n != 2 && n != 4 || t.size < n {
		return nil, errors.New("parts do not fit")
	}
	part := typ{kind: 'u', size: t.size / n}
	from := make([]int, n)
	for k, e := range a.list {
		if from[k], err = c.in(e, part); err != nil {
			return nil, err
		}
	}
	return func(w *warp, m uint32) {
		for l := range 32 {
			if m>>l&1 != 0 {
				var v uint64
				for k, r := range from {
					v |= extend(w.r[r][l], part) << (8 * part.size * k)
				}
				w.r[to][l] = v
			}
		}
	}, nil
}
