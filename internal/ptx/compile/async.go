package compile

import (
	"errors"

	"github.com/weft-project/weft/internal/ptx/simt"
	"github.com/weft-project/weft/internal/ptx/syntax"
)

// async compiles cp.async and what waits for it.
func (c *compiler) async(s *syntax.Statement) (simt.Exec, error) {
	switch {
	case s.Has("async") && s.Has("bulk"):
		return c.copyTile(s)
	case !s.Has("async") || s.Has("bulk") || s.Has("mbarrier"):
		return nil, errUnknown
	case s.Has("commit_group"):
		return (*simt.Warp).Commit, nil
	case s.Has("wait_all"):
		return func(w *simt.Warp, m uint32) { w.CompleteCopies(m, -1) }, nil
	case s.Has("wait_group"):
		if len(s.Args) != 1 || s.Args[0].Kind != syntax.OperandImm || s.Args[0].Imm > 1<<20 {
			return nil, errors.New("expected a number of groups")
		}
		n := int(s.Args[0].Imm)
		return func(w *simt.Warp, m uint32) { w.CompleteCopies(m, n) }, nil
	}
	if len(s.Args) < 3 || len(s.Args) > 4 || s.Args[2].Kind != syntax.OperandImm {
		return nil, errUnknown
	}
	n := int(s.Args[2].Imm)
	if n != 4 && n != 8 && n != 16 || s.Has("cg") && n != 16 {
		return nil, errors.New("4, 8 or 16 bytes are copied; 16 with .cg")
	}
	granule := min(c.k.Granule, 4)
	to, err := c.addressOf(&syntax.Statement{Op: []string{"cp", "shared", "b8"}}, s.Args[0], n)
	if err != nil {
		return nil, err
	}
	from, err := c.addressOf(&syntax.Statement{Op: []string{"cp", "global", "b8"}}, s.Args[1], n)
	if err != nil {
		return nil, err
	}
	c.k.Granule = granule // a copy has 4 bytes at least
	to.Write = true
	size := c.constant(uint64(n))
	if len(s.Args) == 4 {
		if size, err = c.in(s.Args[3], syntax.Type{Kind: 'u', Size: 4}); err != nil {
			return nil, err
		}
	}
	k := &simt.AsyncCopy{To: to, From: from, Size: size, N: n}
	return c.counted(k.Run, to), nil
}
