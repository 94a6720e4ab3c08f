package ptx

import (
	"errors"
)

// async compiles cp.async and what waits for it.
func (c *compiler) async(s *stmt) (exec, error) {
	switch {
	case !s.has("async") || s.has("bulk") || s.has("mbarrier"):
		return nil, errUnknown
	case s.has("commit_group"):
		return (*warp).commit, nil
	case s.has("wait_all"):
		return func(w *warp, m uint32) { w.finish(m, -1) }, nil
	case s.has("wait_group"):
		if len(s.args) != 1 || s.args[0].kind != operandImm || s.args[0].imm > 1<<20 {
			return nil, errors.New("expected a number of groups")
		}
		n := int(s.args[0].imm)
		return func(w *warp, m uint32) { w.finish(m, n) }, nil
	}
	if len(s.args) < 3 || len(s.args) > 4 || s.args[2].kind != operandImm {
		return nil, errUnknown
	}
	n := int(s.args[2].imm)
	if n != 4 && n != 8 && n != 16 || s.has("cg") && n != 16 {
		return nil, errors.New("4, 8 or 16 bytes are copied; 16 with .cg")
	}
	granule := min(c.k.granule, 4)
	to, err := c.addressOf(&stmt{op: []string{"cp", "shared", "b8"}}, s.args[0], n)
	if err != nil {
		return nil, err
	}
	from, err := c.addressOf(&stmt{op: []string{"cp", "global", "b8"}}, s.args[1], n)
	if err != nil {
		return nil, err
	}
	c.k.granule = granule // a copy has 4 bytes at least
	to.write = true
	size := c.constant(uint64(n))
	if len(s.args) == 4 {
		if size, err = c.in(s.args[3], typ{kind: 'u', size: 4}); err != nil {
			return nil, err
		}
	}
	k := &asyncCopy{to: to, from: from, size: size, n: n, meter: c.k.meter}
	return c.metered(k.run, to), nil
}
