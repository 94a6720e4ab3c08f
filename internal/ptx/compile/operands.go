package compile

import (
	"errors"
	"fmt"

	"github.com/weft-project/weft/internal/ptx/simt"
	"github.com/weft-project/weft/internal/ptx/syntax"
)

var errUnknown = errors.New("not understood")

// in gives the register that an operand's value is in.
func (c *compiler) in(o syntax.Operand, t syntax.Type) (int, error) {
	if o.Kind == syntax.OperandImm {
		return c.constant(o.As(t)), nil
	}
	if o.Kind != syntax.OperandName || o.Not || o.Second != "" {
		return 0, errors.New("expected a register or a number")
	}
	if o.Name == "WARP_SZ" {
		return c.constant(32), nil
	}
	sym, ok := c.lookup(o.Name)
	if !ok {
		if k, ok := c.specialReg(o.Name); ok {
			return c.reads(k), nil
		}
		return 0, fmt.Errorf("%s is not declared", o.Name)
	}
	switch sym.kind {
	case symReg:
		if o.Off != 0 {
			return 0, errors.New("a distance from a register")
		}
		return c.reads(sym.index), nil
	case symPred:
		return 0, fmt.Errorf("%s is a predicate", o.Name)
	case symDynamic:
		if o.Off != 0 {
			return 0, errors.New("a distance from dynamic shared memory")
		}
		return c.reads(c.dynamic), nil
	case symGlobal:
		return c.global(sym.index, o.Off), nil
	}
	return c.constant(uint64(int64(sym.index) + o.Off)), nil
}

// out gives the register that an operand names to be written.
func (c *compiler) out(o syntax.Operand) (int, error) {
	if o.Kind != syntax.OperandName || o.Not || o.Off != 0 || o.Second != "" {
		return 0, errors.New("expected a register")
	}
	if o.Name == "_" {
		return c.writes(c.register()), nil
	}
	sym, ok := c.lookup(o.Name)
	if !ok || sym.kind != symReg {
		return 0, fmt.Errorf("%s is not a register", o.Name)
	}
	return c.writes(sym.index), nil
}

// predicate gives the predicate register that an operand names, and what its bits are turned by.
func (c *compiler) predicate(o syntax.Operand) (p int, flip uint32, err error) {
	if o.Kind != syntax.OperandName || o.Off != 0 || o.Second != "" {
		return 0, 0, errors.New("expected a predicate")
	}
	if o.Name == "_" {
		c.k.Preds++
		return c.k.Preds - 1, 0, nil
	}
	sym, ok := c.lookup(o.Name)
	if !ok || sym.kind != symPred {
		return 0, 0, fmt.Errorf("%s is not a predicate", o.Name)
	}
	if o.Not {
		flip = ^uint32(0)
	}
	return sym.index, flip, nil
}

// regs gives the registers of a result and of operands of one type.
func (c *compiler) regs(s *syntax.Statement, t syntax.Type, operands int) (d int, x [4]int, err error) {
	if len(s.Args) != operands+1 {
		return 0, x, fmt.Errorf("%d operands, expected %d", len(s.Args), operands+1)
	}
	if d, err = c.out(s.Args[0]); err != nil {
		return 0, x, err
	}
	for k := range operands {
		if x[k], err = c.in(s.Args[k+1], t); err != nil {
			return 0, x, err
		}
	}
	return d, x, nil
}

// specialReg gives the register of %tid.x and the like.
func (c *compiler) specialReg(name string) (int, bool) {
	switch name {
	case "%tid.x", "%tid.y", "%tid.z", "%ntid.x", "%ntid.y", "%ntid.z", "%ctaid.x", "%ctaid.y", "%ctaid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z",
		"%laneid", "%warpid", "%nwarpid", "%smid", "%nsmid", "%gridid", "%lanemask_eq", "%lanemask_le", "%lanemask_lt", "%lanemask_ge", "%lanemask_gt",
		"%dynamic_smem_size", "%total_smem_size":
	default:
		return 0, false
	}
	for _, s := range c.k.Special {
		if s.Name == name {
			return s.Reg, true
		}
	}
	k := c.register()
	c.pinned[k] = true
	c.k.Special = append(c.k.Special, simt.Special{Reg: k, Name: name})
	return k, true
}
