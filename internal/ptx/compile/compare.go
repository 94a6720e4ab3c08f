package compile

import (
	"errors"
	"math"

	"github.com/weft-project/weft/internal/ptx/simt"
	"github.com/weft-project/weft/internal/ptx/syntax"
)

// compare compiles setp and set.
func (c *compiler) compare(s *syntax.Statement) (simt.Exec, error) {
	ts := s.Types()
	if len(ts) == 0 || len(s.Args) < 3 || len(s.Op) < 3 {
		return nil, errUnknown
	}
	t := ts[len(ts)-1]
	a, err := c.in(s.Args[1], t)
	if err != nil {
		return nil, err
	}
	b, err := c.in(s.Args[2], t)
	if err != nil {
		return nil, err
	}
	test := comparison(s.Op[1], t, a, b, s.Has("ftz"))
	if test == nil {
		return nil, errUnknown
	}
	also, flip := -1, uint32(0)
	if len(s.Args) == 4 {
		if also, flip, err = c.predicate(s.Args[3]); err != nil {
			return nil, err
		}
	}
	how := s.OneOf("and", "or", "xor")
	if (how == "") != (also < 0) {
		return nil, errors.New("a predicate more is for .and, .or and .xor, and they need one")
	}
	combine := func(w *simt.Warp, v uint32) uint32 {
		switch how {
		case "and":
			return v & (w.Preds[also] ^ flip)
		case "or":
			return v | (w.Preds[also] ^ flip)
		case "xor":
			return v ^ (w.Preds[also] ^ flip)
		}
		return v
	}
	if s.Op[0] == "set" {
		return c.setReg(s, ts[0], test, combine)
	}
	d, _, err := c.predicate(syntax.Operand{Name: s.Args[0].Name})
	if err != nil {
		return nil, err
	}
	if s.Args[0].Second == "" && how == "" {
		return func(w *simt.Warp, m uint32) { w.Preds[d] = w.Preds[d]&^m | test(w)&m }, nil
	}
	second := -1
	if n := s.Args[0].Second; n != "" {
		if second, _, err = c.predicate(syntax.Operand{Name: n}); err != nil {
			return nil, err
		}
	}
	return func(w *simt.Warp, m uint32) {
		v := test(w)
		first, other := combine(w, v), combine(w, ^v)
		w.Preds[d] = w.Preds[d]&^m | first&m
		if second >= 0 {
			w.Preds[second] = w.Preds[second]&^m | other&m
		}
	}, nil
}

func (c *compiler) setReg(s *syntax.Statement, to syntax.Type, test func(*simt.Warp) uint32, combine func(*simt.Warp, uint32) uint32) (simt.Exec, error) {
	d, err := c.out(s.Args[0])
	if err != nil {
		return nil, err
	}
	yes := uint64(math.MaxUint32)
	if to.Float() {
		yes = uint64(math.Float32bits(1))
	}
	return func(w *simt.Warp, m uint32) {
		v := combine(w, test(w))
		for l := range 32 {
			if m>>l&1 != 0 {
				w.Regs[d][l] = yes & -uint64(v>>l&1)
			}
		}
	}, nil
}

// comparison gives the lanes for which it holds, of all 32.
func comparison(op string, t syntax.Type, a, b int, ftz bool) func(*simt.Warp) uint32 {
	switch {
	case t.Kind == 'f' && t.Size == 4 && !t.Pair && ftz:
		return compareBy(op, a, b, func(v uint64) float64 { return float64(flush(math.Float32frombits(uint32(v)))) })
	case t.Kind == 'f' && t.Size == 4 && !t.Pair:
		return compareFloat[float32](op, a, b)
	case t.Kind == 'f' && t.Size == 8:
		return compareFloat[float64](op, a, b)
	case t.Float() && t.Size == 2:
		return compareBy(op, a, b, reader(t))
	case t.Float() || t.Kind == 'p':
		return nil
	case t.Signed():
		switch t.Size {
		case 2:
			return compareOrdered[int16](op, a, b)
		case 4:
			return compareOrdered[int32](op, a, b)
		}
		return compareOrdered[int64](op, a, b)
	}
	switch t.Size {
	case 2:
		return compareOrdered[uint16](op, a, b)
	case 4:
		return compareOrdered[uint32](op, a, b)
	}
	return compareOrdered[uint64](op, a, b)
}

func compareBy(op string, a, b int, read func(uint64) float64) func(*simt.Warp) uint32 {
	f := compareFloat[float64](op, 0, 1)
	if f == nil {
		return nil
	}
	return func(w *simt.Warp) uint32 {
		tmp := simt.Warp{Regs: make([]simt.Lanes, 2)}
		for l := range 32 {
			simt.Set(&tmp.Regs[0], l, read(w.Regs[a][l]))
			simt.Set(&tmp.Regs[1], l, read(w.Regs[b][l]))
		}
		return f(&tmp)
	}
}

// compareFloat has the ordered comparisons, which do not hold for NaN, and with a u behind the ones
// that do.
func compareFloat[T simt.Float](op string, a, b int) func(*simt.Warp) uint32 {
	nan := func(w *simt.Warp) uint32 { return nanLanes[T](&w.Regs[a], &w.Regs[b]) }
	switch op {
	case "nan":
		return nan
	case "num":
		return func(w *simt.Warp) uint32 { return ^nan(w) }
	case "equ", "neu", "ltu", "leu", "gtu", "geu":
		f := compareOrdered[T](op[:2], a, b)
		return func(w *simt.Warp) uint32 { return f(w) | nan(w) }
	case "ne":
		f := compareOrdered[T](op, a, b)
		return func(w *simt.Warp) uint32 { return f(w) &^ nan(w) }
	}
	return compareOrdered[T](op, a, b)
}

func compareOrdered[T simt.Scalar](op string, a, b int) func(*simt.Warp) uint32 {
	switch op {
	case "eq":
		return func(w *simt.Warp) uint32 { return equalLanes[T](&w.Regs[a], &w.Regs[b]) }
	case "ne":
		return func(w *simt.Warp) uint32 { return unequalLanes[T](&w.Regs[a], &w.Regs[b]) }
	case "lt", "lo":
		return func(w *simt.Warp) uint32 { return lessLanes[T](&w.Regs[a], &w.Regs[b]) }
	case "le", "ls":
		return func(w *simt.Warp) uint32 { return lessOrEqualLanes[T](&w.Regs[a], &w.Regs[b]) }
	case "gt", "hi":
		return compareOrdered[T]("lt", b, a)
	case "ge", "hs":
		return compareOrdered[T]("le", b, a)
	}
	return nil
}

//go:norace
//go:nocheckptr
func equalLanes[T simt.Scalar](A, B *simt.Lanes) (v uint32) {
	for l := range 32 {
		if simt.At[T](A, l) == simt.At[T](B, l) {
			v |= 1 << l
		}
	}
	return v
}

//go:norace
//go:nocheckptr
func unequalLanes[T simt.Scalar](A, B *simt.Lanes) (v uint32) {
	for l := range 32 {
		if simt.At[T](A, l) != simt.At[T](B, l) {
			v |= 1 << l
		}
	}
	return v
}

//go:norace
//go:nocheckptr
func lessLanes[T simt.Scalar](A, B *simt.Lanes) (v uint32) {
	for l := range 32 {
		if simt.At[T](A, l) < simt.At[T](B, l) {
			v |= 1 << l
		}
	}
	return v
}

//go:norace
//go:nocheckptr
func lessOrEqualLanes[T simt.Scalar](A, B *simt.Lanes) (v uint32) {
	for l := range 32 {
		if simt.At[T](A, l) <= simt.At[T](B, l) {
			v |= 1 << l
		}
	}
	return v
}

//go:norace
//go:nocheckptr
func nanLanes[T simt.Float](A, B *simt.Lanes) (v uint32) {
	for l := range 32 {
		if x, y := simt.At[T](A, l), simt.At[T](B, l); x != x || y != y {
			v |= 1 << l
		}
	}
	return v
}

// selp picks by a predicate.
func (c *compiler) selp(s *syntax.Statement) (simt.Exec, error) {
	ts := s.Types()
	if len(s.Args) != 4 || len(ts) != 1 {
		return nil, errUnknown
	}
	p, flip, err := c.predicate(s.Args[3])
	if err != nil {
		return nil, err
	}
	short := *s
	short.Args = s.Args[:3]
	d, x, err := c.regs(&short, ts[0], 2)
	return func(w *simt.Warp, m uint32) { pickLanes(&w.Regs[d], &w.Regs[x[0]], &w.Regs[x[1]], m, w.Preds[p]^flip) }, err
}

//go:norace
//go:nocheckptr
func pickLanes(D, A, B *simt.Lanes, m, p uint32) {
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
func (c *compiler) slct(s *syntax.Statement) (simt.Exec, error) {
	ts := s.Types()
	if len(s.Args) != 4 || len(ts) != 2 || ts[1].Size != 4 {
		return nil, errUnknown
	}
	by, err := c.in(s.Args[3], ts[1])
	if err != nil {
		return nil, err
	}
	short := *s
	short.Args = s.Args[:3]
	d, x, err := c.regs(&short, ts[0], 2)
	return func(w *simt.Warp, m uint32) {
		for l := range 32 {
			if m>>l&1 == 0 {
				continue
			}
			yes := simt.At[int32](&w.Regs[by], l) >= 0
			if ts[1].Float() {
				yes = simt.At[float32](&w.Regs[by], l) >= 0
			}
			v := w.Regs[x[1]][l]
			if yes {
				v = w.Regs[x[0]][l]
			}
			w.Regs[d][l] = v
		}
	}, err
}

// testp asks what kind of number one is.
func (c *compiler) testp(s *syntax.Statement) (simt.Exec, error) {
	ts := s.Types()
	if len(s.Args) != 2 || len(ts) != 1 || len(s.Op) != 3 || reader(ts[0]) == nil {
		return nil, errUnknown
	}
	t := ts[0]
	d, _, err := c.predicate(s.Args[0])
	if err != nil {
		return nil, err
	}
	a, err := c.in(s.Args[1], t)
	if err != nil {
		return nil, err
	}
	least := math.Ldexp(1, -126)
	if t.Size == 8 {
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
	f := tests[s.Op[1]]
	if f == nil {
		return nil, errUnknown
	}
	return func(w *simt.Warp, m uint32) {
		for l := range 32 {
			if m>>l&1 != 0 {
				w.Preds[d] &^= 1 << l
				if f(read(w.Regs[a][l])) {
					w.Preds[d] |= 1 << l
				}
			}
		}
	}, nil
}
