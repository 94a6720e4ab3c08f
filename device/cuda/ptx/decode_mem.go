package ptx

import (
	"errors"
	"fmt"
)

// addressOf reads an operand [name+off] of a memory instruction on n elements.
func (c *compiler) addressOf(s *stmt, o operand, n int) (access, error) {
	t := s.types()
	if o.kind != operandAddr || len(t) == 0 {
		return access{}, errors.New("expected an address and a type")
	}
	last := t[len(t)-1]
	a := access{off: uint64(o.off), size: last.size, all: last.size * n}
	if last.kind == 'p' {
		return a, errUnknown
	}
	a.space = spaceOf(s)
	if a.space == shared || a.space == generic {
		c.k.granule = min(c.k.granule, a.size)
	}
	if o.name == "" {
		a.reg = c.constant(0)
		return a, nil
	}
	if sym, ok := c.lookup(o.name); ok && a.space == params && sym.kind == symLocal {
		a.space = local // a parameter of a function that is called
	}
	var err error
	a.reg, err = c.in(operand{name: o.name}, typ{kind: 'u', size: 8})
	return a, err
}

func spaceOf(s *stmt) space {
	switch s.oneOf("global", "const", "shared", "shared::cta", "local", "param") {
	case "global", "const":
		return global
	case "shared", "shared::cta":
		return shared
	case "local":
		return local
	case "param":
		return params
	}
	return generic
}

// elements gives the operands of a vector, or the one.
func elements(o operand) []operand {
	if o.kind == operandVec {
		return o.list
	}
	return []operand{o}
}

// load compiles ld.
func (c *compiler) load(s *stmt) (exec, error) {
	if len(s.args) != 2 {
		return nil, errUnknown
	}
	to := elements(s.args[0])
	if err := vectorOf(s, len(to)); err != nil {
		return nil, err
	}
	a, err := c.addressOf(s, s.args[1], len(to))
	if err != nil {
		return nil, err
	}
	d := make([]int, len(to))
	for k := range to {
		if d[k], err = c.out(to[k]); err != nil {
			return nil, err
		}
	}
	ts := s.types()
	return c.metered(loadsOf(ts[len(ts)-1])(a, d), a), nil
}

// loadsOf gives the load of a type, which is extended to what a register has.
func loadsOf(t typ) func(a access, d []int) exec {
	switch {
	case t == typ{kind: 's', size: 1}:
		return loads[int8]
	case t == typ{kind: 's', size: 2}:
		return loads[int16]
	case t == typ{kind: 's', size: 4}:
		return loads[int32]
	case t.size == 1:
		return loads[uint8]
	case t.size == 2:
		return loads[uint16]
	case t.size == 4:
		return loads[uint32]
	}
	return loads[uint64]
}

func vectorOf(s *stmt, n int) error {
	want := 1
	if s.has("v2") {
		want = 2
	}
	if s.has("v4") {
		want = 4
	}
	if n != want {
		return fmt.Errorf("%d registers, expected %d", n, want)
	}
	return nil
}

// store compiles st.
func (c *compiler) store(s *stmt) (exec, error) {
	if len(s.args) != 2 {
		return nil, errUnknown
	}
	from := elements(s.args[1])
	if err := vectorOf(s, len(from)); err != nil {
		return nil, err
	}
	a, err := c.addressOf(s, s.args[0], len(from))
	if err != nil {
		return nil, err
	}
	if a.space == params || s.has("const") {
		return nil, errors.New("a store to what cannot be written")
	}
	a.write = true
	ts := s.types()
	t := ts[len(ts)-1]
	v := make([]int, len(from))
	for k := range from {
		if v[k], err = c.in(from[k], t); err != nil {
			return nil, err
		}
	}
	return c.metered(storesOf(t.size)(a, v), a), nil
}

func storesOf(size int) func(a access, v []int) exec {
	switch size {
	case 1:
		return stores[uint8]
	case 2:
		return stores[uint16]
	case 4:
		return stores[uint32]
	}
	return stores[uint64]
}

// metered counts what an instruction asks of memory, before it does so.
func (c *compiler) metered(run exec, a access) exec {
	t := c.k.meter
	if t == nil {
		return run
	}
	return func(w *warp, m uint32) {
		t.count(&a, &w.r[a.reg], m)
		run(w, m)
	}
}
