package compile

import (
	"github.com/weft-project/weft/internal/ptx/simt"
	"github.com/weft-project/weft/internal/ptx/syntax"
)

// cvta turns an address of a space into one that all may use, and back.
func (c *compiler) cvta(s *syntax.Statement) (simt.Exec, error) {
	d, x, err := c.regs(s, syntax.Type{Kind: 'u', Size: 8}, 1)
	if err != nil {
		return nil, err
	}
	var base uint64
	switch spaceOf(s) {
	case simt.Shared:
		base = simt.SharedWindow
	case simt.Local:
		base = simt.LocalWindow
	case simt.Generic:
		return nil, errUnknown
	case simt.Parameter:
		base = simt.ParameterWindow
	}
	if s.Has("to") {
		base = -base
	}
	if base == 0 {
		return copy64(d, x[0]), nil
	}
	return map1(d, x[0], func(v uint64) uint64 { return v + base }), nil
}

// isspacep asks what memory an address is of.
func (c *compiler) isspacep(s *syntax.Statement) (simt.Exec, error) {
	if len(s.Args) != 2 {
		return nil, errUnknown
	}
	d, _, err := c.predicate(s.Args[0])
	if err != nil {
		return nil, err
	}
	a, err := c.in(s.Args[1], syntax.Type{Kind: 'u', Size: 8})
	space := s.OneOf("global", "shared", "local", "const")
	return func(w *simt.Warp, m uint32) {
		for l := range 32 {
			if m>>l&1 == 0 {
				continue
			}
			q := w.Regs[a][l]
			is := "global"
			switch simt.SpaceAt(q) {
			case simt.Shared:
				is = "shared"
			case simt.Local:
				is = "local"
			default:
				if w.Constant(q) {
					is = "const"
				}
			}
			w.Preds[d] &^= 1 << l
			if is == space {
				w.Preds[d] |= 1 << l
			}
		}
	}, err
}
