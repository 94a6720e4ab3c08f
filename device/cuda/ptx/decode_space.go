package ptx

import "errors"

// cvta turns an address of a space into one that all may use, and back.
func (c *compiler) cvta(s *stmt) (exec, error) {
	d, x, err := c.regs(s, typ{kind: 'u', size: 8}, 1)
	if err != nil {
		return nil, err
	}
	var base uint64
	switch spaceOf(s) {
	case shared:
		base = sharedWindow
	case local:
		base = localWindow
	case generic:
		return nil, errUnknown
	case params:
		return nil, errors.New("generic addresses of parameters are not understood")
	}
	if s.has("to") {
		base = -base
	}
	if base == 0 {
		return copy64(d, x[0]), nil
	}
	return map1(d, x[0], func(v uint64) uint64 { return v + base }), nil
}

// isspacep asks what memory an address is of.
func (c *compiler) isspacep(s *stmt) (exec, error) {
	if len(s.args) != 2 {
		return nil, errUnknown
	}
	d, _, err := c.predicate(s.args[0])
	if err != nil {
		return nil, err
	}
	a, err := c.in(s.args[1], typ{kind: 'u', size: 8})
	space := s.oneOf("global", "shared", "local", "const")
	return func(w *warp, m uint32) {
		for l := range 32 {
			if m>>l&1 == 0 {
				continue
			}
			q := w.r[a][l]
			is := "global"
			switch spaceAt(q) {
			case shared:
				is = "shared"
			case local:
				is = "local"
			default:
				if w.constant(q) {
					is = "const"
				}
			}
			w.p[d] &^= 1 << l
			if is == space {
				w.p[d] |= 1 << l
			}
		}
	}, err
}
