package ptx

import (
	"errors"
	"math"
)

// compare compiles setp and set.
func (c *compiler) compare(s *stmt) (exec, error) {
	ts := s.types()
	if len(ts) == 0 || len(s.args) < 3 || len(s.op) < 3 {
		return nil, errUnknown
	}
	t := ts[len(ts)-1]
	a, err := c.in(s.args[1], t)
	if err != nil {
		return nil, err
	}
	b, err := c.in(s.args[2], t)
	if err != nil {
		return nil, err
	}
	test := comparison(s.op[1], t, a, b, s.has("ftz"))
	if test == nil {
		return nil, errUnknown
	}
	also, flip := -1, uint32(0)
	if len(s.args) == 4 {
		if also, flip, err = c.predicate(s.args[3]); err != nil {
			return nil, err
		}
	}
	how := s.oneOf("and", "or", "xor")
	if (how == "") != (also < 0) {
		return nil, errors.New("a predicate more is for .and, .or and .xor, and they need one")
	}
	combine := func(w *warp, v uint32) uint32 {
		switch how {
		case "and":
			return v & (w.p[also] ^ flip)
		case "or":
			return v | (w.p[also] ^ flip)
		case "xor":
			return v ^ (w.p[also] ^ flip)
		}
		return v
	}
	if s.op[0] == "set" {
		return c.setReg(s, ts[0], test, combine)
	}
	d, _, err := c.predicate(operand{name: s.args[0].name})
	if err != nil {
		return nil, err
	}
	if s.args[0].second == "" && how == "" {
		return func(w *warp, m uint32) { w.p[d] = w.p[d]&^m | test(w)&m }, nil
	}
	second := -1
	if n := s.args[0].second; n != "" {
		if second, _, err = c.predicate(operand{name: n}); err != nil {
			return nil, err
		}
	}
	return func(w *warp, m uint32) {
		v := test(w)
		first, other := combine(w, v), combine(w, ^v)
		w.p[d] = w.p[d]&^m | first&m
		if second >= 0 {
			w.p[second] = w.p[second]&^m | other&m
		}
	}, nil
}

func (c *compiler) setReg(s *stmt, to typ, test func(*warp) uint32, combine func(*warp, uint32) uint32) (exec, error) {
	d, err := c.out(s.args[0])
	if err != nil {
		return nil, err
	}
	yes := uint64(math.MaxUint32)
	if to.float() {
		yes = uint64(math.Float32bits(1))
	}
	return func(w *warp, m uint32) {
		v := combine(w, test(w))
		for l := range 32 {
			if m>>l&1 != 0 {
				w.r[d][l] = yes & -uint64(v>>l&1)
			}
		}
	}, nil
}

// comparison gives the lanes for which it holds, of all 32.
func comparison(op string, t typ, a, b int, ftz bool) func(*warp) uint32 {
	switch {
	case t.kind == 'f' && t.size == 4 && !t.pair && ftz:
		return compareBy(op, a, b, func(v uint64) float64 { return float64(flush(math.Float32frombits(uint32(v)))) })
	case t.kind == 'f' && t.size == 4 && !t.pair:
		return compareFloat[float32](op, a, b)
	case t.kind == 'f' && t.size == 8:
		return compareFloat[float64](op, a, b)
	case t.float() && t.size == 2:
		return compareBy(op, a, b, reader(t))
	case t.float() || t.kind == 'p':
		return nil
	case t.signed():
		switch t.size {
		case 2:
			return compareOrdered[int16](op, a, b)
		case 4:
			return compareOrdered[int32](op, a, b)
		}
		return compareOrdered[int64](op, a, b)
	}
	switch t.size {
	case 2:
		return compareOrdered[uint16](op, a, b)
	case 4:
		return compareOrdered[uint32](op, a, b)
	}
	return compareOrdered[uint64](op, a, b)
}

func compareBy(op string, a, b int, read func(uint64) float64) func(*warp) uint32 {
	f := compareFloat[float64](op, 0, 1)
	if f == nil {
		return nil
	}
	return func(w *warp) uint32 {
		tmp := warp{r: make([]lanes, 2)}
		for l := range 32 {
			set(&tmp.r[0], l, read(w.r[a][l]))
			set(&tmp.r[1], l, read(w.r[b][l]))
		}
		return f(&tmp)
	}
}

// compareFloat has the ordered comparisons, which do not hold for NaN, and with a u behind the ones
// that do.
func compareFloat[T float](op string, a, b int) func(*warp) uint32 {
	nan := func(w *warp) uint32 { return nanLanes[T](&w.r[a], &w.r[b]) }
	switch op {
	case "nan":
		return nan
	case "num":
		return func(w *warp) uint32 { return ^nan(w) }
	case "equ", "neu", "ltu", "leu", "gtu", "geu":
		f := compareOrdered[T](op[:2], a, b)
		return func(w *warp) uint32 { return f(w) | nan(w) }
	case "ne":
		f := compareOrdered[T](op, a, b)
		return func(w *warp) uint32 { return f(w) &^ nan(w) }
	}
	return compareOrdered[T](op, a, b)
}

func compareOrdered[T scalar](op string, a, b int) func(*warp) uint32 {
	switch op {
	case "eq":
		return func(w *warp) uint32 { return equalLanes[T](&w.r[a], &w.r[b]) }
	case "ne":
		return func(w *warp) uint32 { return unequalLanes[T](&w.r[a], &w.r[b]) }
	case "lt", "lo":
		return func(w *warp) uint32 { return lessLanes[T](&w.r[a], &w.r[b]) }
	case "le", "ls":
		return func(w *warp) uint32 { return lessOrEqualLanes[T](&w.r[a], &w.r[b]) }
	case "gt", "hi":
		return compareOrdered[T]("lt", b, a)
	case "ge", "hs":
		return compareOrdered[T]("le", b, a)
	}
	return nil
}

//go:norace
//go:nocheckptr
func equalLanes[T scalar](A, B *lanes) (v uint32) {
	for l := range 32 {
		if at[T](A, l) == at[T](B, l) {
			v |= 1 << l
		}
	}
	return v
}

//go:norace
//go:nocheckptr
func unequalLanes[T scalar](A, B *lanes) (v uint32) {
	for l := range 32 {
		if at[T](A, l) != at[T](B, l) {
			v |= 1 << l
		}
	}
	return v
}

//go:norace
//go:nocheckptr
func lessLanes[T scalar](A, B *lanes) (v uint32) {
	for l := range 32 {
		if at[T](A, l) < at[T](B, l) {
			v |= 1 << l
		}
	}
	return v
}

//go:norace
//go:nocheckptr
func lessOrEqualLanes[T scalar](A, B *lanes) (v uint32) {
	for l := range 32 {
		if at[T](A, l) <= at[T](B, l) {
			v |= 1 << l
		}
	}
	return v
}

//go:norace
//go:nocheckptr
func nanLanes[T float](A, B *lanes) (v uint32) {
	for l := range 32 {
		if x, y := at[T](A, l), at[T](B, l); x != x || y != y {
			v |= 1 << l
		}
	}
	return v
}

// selp picks by a predicate.
func (c *compiler) selp(s *stmt) (exec, error) {
	ts := s.types()
	if len(s.args) != 4 || len(ts) != 1 {
		return nil, errUnknown
	}
	p, flip, err := c.predicate(s.args[3])
	if err != nil {
		return nil, err
	}
	short := *s
	short.args = s.args[:3]
	d, x, err := c.regs(&short, ts[0], 2)
	return func(w *warp, m uint32) { pickLanes(&w.r[d], &w.r[x[0]], &w.r[x[1]], m, w.p[p]^flip) }, err
}

//go:norace
//go:nocheckptr
func pickLanes(D, A, B *lanes, m, p uint32) {
	for l := range 32 {
		if m>>l&1 != 0 {
			v := B[l]
			if p>>l&1 != 0 {
				v = A[l]
			}
			D[l] = v
		}
	}
}

// slct picks by the sign of its third operand.
func (c *compiler) slct(s *stmt) (exec, error) {
	ts := s.types()
	if len(s.args) != 4 || len(ts) != 2 || ts[1].size != 4 {
		return nil, errUnknown
	}
	by, err := c.in(s.args[3], ts[1])
	if err != nil {
		return nil, err
	}
	short := *s
	short.args = s.args[:3]
	d, x, err := c.regs(&short, ts[0], 2)
	return func(w *warp, m uint32) {
		for l := range 32 {
			if m>>l&1 == 0 {
				continue
			}
			yes := at[int32](&w.r[by], l) >= 0
			if ts[1].float() {
				yes = at[float32](&w.r[by], l) >= 0
			}
			v := w.r[x[1]][l]
			if yes {
				v = w.r[x[0]][l]
			}
			w.r[d][l] = v
		}
	}, err
}

// testp asks what kind of number one is.
func (c *compiler) testp(s *stmt) (exec, error) {
	ts := s.types()
	if len(s.args) != 2 || len(ts) != 1 || len(s.op) != 3 || reader(ts[0]) == nil {
		return nil, errUnknown
	}
	t := ts[0]
	d, _, err := c.predicate(s.args[0])
	if err != nil {
		return nil, err
	}
	a, err := c.in(s.args[1], t)
	if err != nil {
		return nil, err
	}
	least := math.Ldexp(1, -126)
	if t.size == 8 {
		least = math.Ldexp(1, -1022)
	}
	read := reader(t)
	tests := map[string]func(f float64) bool{
		"finite":     func(f float64) bool { return f-f == 0 },
		"infinite":   func(f float64) bool { return math.IsInf(f, 0) },
		"number":     func(f float64) bool { return f == f },
		"notanumber": func(f float64) bool { return f != f },
		"normal":     func(f float64) bool { return math.Abs(f) >= least && f-f == 0 },
		"subnormal":  func(f float64) bool { return f != 0 && math.Abs(f) < least },
	}
	f := tests[s.op[1]]
	if f == nil {
		return nil, errUnknown
	}
	return func(w *warp, m uint32) {
		for l := range 32 {
			if m>>l&1 != 0 {
				w.p[d] &^= 1 << l
				if f(read(w.r[a][l])) {
					w.p[d] |= 1 << l
				}
			}
		}
	}, nil
}
