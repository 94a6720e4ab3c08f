package compile

import (
	"errors"
	"fmt"

	"github.com/weft-project/weft/internal/ptx/simt"
	"github.com/weft-project/weft/internal/ptx/syntax"
)

// addressOf reads an operand [name+off] of a memory instruction on n elements.
func (c *compiler) addressOf(s *syntax.Statement, o syntax.Operand, n int) (simt.Access, error) {
	t := s.Types()
	if o.Kind != syntax.OperandAddr || len(o.List) > 0 || len(t) == 0 {
		return simt.Access{}, errors.New("expected an address and a type")
	}
	last := t[len(t)-1]
	a := simt.Access{Off: uint64(o.Off), Size: last.Size, All: last.Size * n}
	if last.Kind == 'p' {
		return a, errUnknown
	}
	a.Space = spaceOf(s)
	if a.Space == simt.Shared || a.Space == simt.Generic {
		c.k.Granule = min(c.k.Granule, a.Size)
	}
	if o.Name == "" {
		a.Reg = c.constant(0)
		return a, nil
	}
	if sym, ok := c.lookup(o.Name); ok && a.Space == simt.Parameter && sym.kind == symLocal {
		a.Space = simt.Local // a parameter of a function that is called
	}
	var err error
	a.Reg, err = c.in(syntax.Operand{Name: o.Name}, syntax.Type{Kind: 'u', Size: 8})
	return a, err
}

func spaceOf(s *syntax.Statement) simt.Space {
	switch s.OneOf("global", "const", "shared", "shared::cta", "local", "param") {
	case "global", "const":
		return simt.Global
	case "shared", "shared::cta":
		return simt.Shared
	case "local":
		return simt.Local
	case "param":
		return simt.Parameter
	}
	return simt.Generic
}

// elements gives the operands of a vector, or the one.
func elements(o syntax.Operand) []syntax.Operand {
	if o.Kind == syntax.OperandVec {
		return o.List
	}
	return []syntax.Operand{o}
}

// load compiles ld.
func (c *compiler) load(s *syntax.Statement) (simt.Exec, error) {
	if len(s.Args) != 2 {
		return nil, errUnknown
	}
	to := elements(s.Args[0])
	if err := vectorOf(s, len(to)); err != nil {
		return nil, err
	}
	a, err := c.addressOf(s, s.Args[1], len(to))
	if err != nil {
		return nil, err
	}
	d := make([]int, len(to))
	for k := range to {
		if d[k], err = c.out(to[k]); err != nil {
			return nil, err
		}
	}
	ts := s.Types()
	return c.counted(loadsOf(ts[len(ts)-1])(a, d), a), nil
}

// loadsOf gives the load of a type, which is extended to what a register has.
func loadsOf(t syntax.Type) func(a simt.Access, d []int) simt.Exec {
	switch {
	case t == syntax.Type{Kind: 's', Size: 1}:
		return simt.Loads[int8]
	case t == syntax.Type{Kind: 's', Size: 2}:
		return simt.Loads[int16]
	case t == syntax.Type{Kind: 's', Size: 4}:
		return simt.Loads[int32]
	case t.Size == 1:
		return simt.Loads[uint8]
	case t.Size == 2:
		return simt.Loads[uint16]
	case t.Size == 4:
		return simt.Loads[uint32]
	}
	return simt.Loads[uint64]
}

func vectorOf(s *syntax.Statement, n int) error {
	want := 1
	if s.Has("v2") {
		want = 2
	}
	if s.Has("v4") {
		want = 4
	}
	if n != want {
		return fmt.Errorf("%d registers, expected %d", n, want)
	}
	return nil
}

// store compiles st.
func (c *compiler) store(s *syntax.Statement) (simt.Exec, error) {
	if len(s.Args) != 2 {
		return nil, errUnknown
	}
	from := elements(s.Args[1])
	if err := vectorOf(s, len(from)); err != nil {
		return nil, err
	}
	a, err := c.addressOf(s, s.Args[0], len(from))
	if err != nil {
		return nil, err
	}
	if a.Space == simt.Parameter || s.Has("const") {
		return nil, errors.New("a store to what cannot be written")
	}
	a.Write = true
	ts := s.Types()
	t := ts[len(ts)-1]
	v := make([]int, len(from))
	for k := range from {
		if v[k], err = c.in(from[k], t); err != nil {
			return nil, err
		}
	}
	return c.counted(storesOf(t.Size)(a, v), a), nil
}

func storesOf(size int) func(a simt.Access, v []int) simt.Exec {
	switch size {
	case 1:
		return simt.Stores[uint8]
	case 2:
		return simt.Stores[uint16]
	case 4:
		return simt.Stores[uint32]
	}
	return simt.Stores[uint64]
}

// counted counts what an instruction asks of memory, before it does so.
func (c *compiler) counted(run simt.Exec, a simt.Access) simt.Exec {
	if !c.metered {
		return run
	}
	return func(w *simt.Warp, m uint32) {
		w.Meter().Count(&a, &w.Regs[a.Reg], m)
		run(w, m)
	}
}
