package ptx

import "errors"

// barrier compiles bar and barrier.
func (c *compiler) barrier(s *stmt, o *op) error {
	o.kind = opBarrier
	b := &o.bar
	b.aligned = s.op[0] == "bar" || s.has("aligned")
	if s.has("warp") {
		if len(s.args) != 1 {
			return errUnknown
		}
		o.kind = opSync
		o.run = (*warp).order
		return c.maskOf(s, o)
	}
	args := s.args
	b.arrive = s.has("arrive")
	if s.has("red") {
		if len(args) < 3 {
			return errUnknown
		}
		var err error
		if b.p, b.flip, err = c.predicate(args[len(args)-1]); err != nil {
			return err
		}
		if s.has("popc") {
			b.red = 'p'
			b.d, err = c.out(args[0])
		} else {
			if b.red = 'a'; s.has("or") {
				b.red = 'o'
			}
			b.d, _, err = c.predicate(args[0])
		}
		if err != nil {
			return err
		}
		args = args[1 : len(args)-1]
	} else if !b.arrive && !s.has("sync") {
		return errUnknown
	}
	if len(args) < 1 || len(args) > 2 {
		return errors.New("expected a barrier, and perhaps a number of threads")
	}
	u32 := typ{kind: 'u', size: 4}
	id, err := c.in(args[0], u32)
	b.id, b.count = int32(id), -1
	if err == nil && len(args) == 2 {
		var n int
		n, err = c.in(args[1], u32)
		b.count = int32(n)
	}
	return err
}
