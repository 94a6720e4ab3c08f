package compile

import (
	"errors"

	"github.com/weft-project/weft/internal/ptx/simt"
	"github.com/weft-project/weft/internal/ptx/syntax"
)

// barrier compiles bar and barrier.
func (c *compiler) barrier(s *syntax.Statement, o *simt.Op) error {
	o.Kind = simt.OpBarrier
	b := &o.Bar
	b.Aligned = s.Op[0] == "bar" || s.Has("aligned")
	if s.Has("warp") {
		if len(s.Args) != 1 {
			return errUnknown
		}
		o.Kind = simt.OpSync
		o.Run = (*simt.Warp).Order
		return c.maskOf(s, o)
	}
	args := s.Args
	b.Arrive = s.Has("arrive")
	if s.Has("red") {
		if len(args) < 3 {
			return errUnknown
		}
		var err error
		if b.Test, b.Flip, err = c.predicate(args[len(args)-1]); err != nil {
			return err
		}
		if s.Has("popc") {
			b.Fold = 'p'
			b.Dest, err = c.out(args[0])
		} else {
			if b.Fold = 'a'; s.Has("or") {
				b.Fold = 'o'
			}
			b.Dest, _, err = c.predicate(args[0])
		}
		if err != nil {
			return err
		}
		args = args[1 : len(args)-1]
	} else if !b.Arrive && !s.Has("sync") {
		return errUnknown
	}
	if len(args) < 1 || len(args) > 2 {
		return errors.New("expected a barrier, and perhaps a number of threads")
	}
	u32 := syntax.Type{Kind: 'u', Size: 4}
	id, err := c.in(args[0], u32)
	b.Barrier, b.Count = int32(id), -1
	if b.Arrive && len(args) == 1 {
		return errors.New("who arrives says for how many threads the barrier is")
	}
	if err == nil && len(args) == 2 {
		var n int
		n, err = c.in(args[1], u32)
		b.Count = int32(n)
	}
	return err
}
