package ptx

import (
	"errors"
	"fmt"
)

var errUnknown = errors.New("not understood")

// in gives the register that an operand's value is in.
func (c *compiler) in(o operand, t typ) (int, error) {
	if o.kind == operandImm {
		return c.constant(o.as(t)), nil
	}
	if o.kind != operandName || o.not || o.second != "" {
		return 0, errors.New("expected a register or a number")
	}
	if o.name == "WARP_SZ" {
		return c.constant(32), nil
	}
	sym, ok := c.lookup(o.name)
	if !ok {
		if k, ok := c.specialReg(o.name); ok {
			return c.reads(k), nil
		}
		return 0, fmt.Errorf("%s is not declared", o.name)
	}
	switch sym.kind {
	case symReg:
		if o.off != 0 {
			return 0, errors.New("a distance from a register")
		}
		return c.reads(sym.index), nil
	case symPred:
		return 0, fmt.Errorf("%s is a predicate", o.name)
	case symDynamic:
		if o.off != 0 {
			return 0, errors.New("a distance from dynamic shared memory")
		}
		return c.reads(c.dynamic), nil
	}
	return c.constant(uint64(int64(sym.index) + o.off)), nil
}

// out gives the register that an operand names to be written.
func (c *compiler) out(o operand) (int, error) {
	if o.kind != operandName || o.not || o.off != 0 || o.second != "" {
		return 0, errors.New("expected a register")
	}
	if o.name == "_" {
		return c.writes(c.register()), nil
	}
	sym, ok := c.lookup(o.name)
	if !ok || sym.kind != symReg {
		return 0, fmt.Errorf("%s is not a register", o.name)
	}
	return c.writes(sym.index), nil
}

// predicate gives the predicate register that an operand names, and what its bits are turned by.
func (c *compiler) predicate(o operand) (p int, flip uint32, err error) {
	if o.kind != operandName || o.off != 0 || o.second != "" {
		return 0, 0, errors.New("expected a predicate")
	}
	if o.name == "_" {
		c.k.preds++
		return c.k.preds - 1, 0, nil
	}
	sym, ok := c.lookup(o.name)
	if !ok || sym.kind != symPred {
		return 0, 0, fmt.Errorf("%s is not a predicate", o.name)
	}
	if o.not {
		flip = ^uint32(0)
	}
	return sym.index, flip, nil
}

// regs gives the registers of a result and of operands of one type.
func (c *compiler) regs(s *stmt, t typ, operands int) (d int, x [4]int, err error) {
	if len(s.args) != operands+1 {
		return 0, x, fmt.Errorf("%d operands, expected %d", len(s.args), operands+1)
	}
	if d, err = c.out(s.args[0]); err != nil {
		return 0, x, err
	}
	for k := range operands {
		if x[k], err = c.in(s.args[k+1], t); err != nil {
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
	for _, s := range c.k.special {
		if s.name == name {
			return s.reg, true
		}
	}
	k := c.register()
	c.pinned[k] = true
	c.k.special = append(c.k.special, special{k, name})
	return k, true
}
