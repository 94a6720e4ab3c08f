package compile

import (
	"errors"
	"math/bits"

	"github.com/weft-project/weft/internal/ptx/simt"
	"github.com/weft-project/weft/internal/ptx/syntax"
)

// operandsOf is how many an arithmetic instruction has.
func operandsOf(op string) int {
	switch op {
	case "add", "sub", "mul", "div", "rem", "min", "max", "and", "or", "xor", "shl", "shr", "copysign":
		return 2
	case "mad", "fma":
		return 3
	}
	return 1
}

// integers compiles arithmetic on T, whose products fit a W where T has at most 32 bits.
func integers[T, W simt.Integer](c *compiler, s *syntax.Statement, t syntax.Type) (simt.Exec, error) {
	n := operandsOf(s.Op[0])
	if len(s.Args) != n+1 {
		return nil, errUnknown
	}
	d, x, err := c.regs(s, t, n)
	if err != nil {
		return nil, err
	}
	a, b := x[0], x[1]
	switch op := s.Op[0]; op {
	case "mul", "mad":
		return products[T, W](c, s, t, d, x)
	case "shl", "shr":
		if b, err = c.in(s.Args[2], syntax.Type{Kind: 'u', Size: 4}); err != nil {
			return nil, err
		}
		return shift[T](op == "shl", d, a, b), nil
	case "add", "sub":
		if s.OneOf("cc", "sat") != "" {
			return nil, errUnknown
		}
		if op == "add" {
			return add[T](d, a, b), nil
		}
		return sub[T](d, a, b), nil
	case "and":
		return and[T](d, a, b), nil
	case "or":
		return map2(d, a, b, func(x, y T) T { return x | y }), nil
	case "xor":
		return map2(d, a, b, func(x, y T) T { return x ^ y }), nil
	case "not":
		return map1(d, a, func(x T) T { return ^x }), nil
	case "cnot":
		return map1(d, a, func(x T) T {
			if x == 0 {
				return 1
			}
			return 0
		}), nil
	case "neg":
		return map1(d, a, func(x T) T { return -x }), nil
	case "abs":
		return map1(d, a, func(x T) T { return max(x, -x) }), nil
	case "min":
		return map2(d, a, b, func(x, y T) T { return min(x, y) }), nil
	case "max":
		return map2(d, a, b, func(x, y T) T { return max(x, y) }), nil
	case "div": // by 0 gives all ones on a GPU; the smallest number by -1 wraps, as in Go
		return map2(d, a, b, func(x, y T) T {
			if y == 0 {
				return ^T(0)
			}
			return x / y
		}), nil
	case "rem":
		return map2(d, a, b, func(x, y T) T {
			if y == 0 {
				return x
			}
			return x % y
		}), nil
	}
	return nil, errUnknown
}

// shift clamps the distance to the width, as Go does.
func shift[T simt.Integer](left bool, d, a, b int) simt.Exec {
	if left {
		return func(w *simt.Warp, m uint32) { leftLanes[T](&w.Regs[d], &w.Regs[a], &w.Regs[b], m) }
	}
	return func(w *simt.Warp, m uint32) { rightLanes[T](&w.Regs[d], &w.Regs[a], &w.Regs[b], m) }
}

//go:norace
//go:nocheckptr
func leftLanes[T simt.Integer](D, A, B *simt.Lanes, m uint32) {
	for l := range 32 {
		if m>>l&1 != 0 {
			simt.Set(D, l, simt.At[T](A, l)<<simt.At[uint32](B, l))
		}
	}
}

//go:norace
//go:nocheckptr
func rightLanes[T simt.Integer](D, A, B *simt.Lanes, m uint32) {
	for l := range 32 {
		if m>>l&1 != 0 {
			simt.Set(D, l, simt.At[T](A, l)>>simt.At[uint32](B, l))
		}
	}
}

func and[T simt.Integer](d, a, b int) simt.Exec {
	return func(w *simt.Warp, m uint32) { andLanes[T](&w.Regs[d], &w.Regs[a], &w.Regs[b], m) }
}

//go:norace
//go:nocheckptr
func andLanes[T simt.Integer](D, A, B *simt.Lanes, m uint32) {
	for l := range 32 {
		if m>>l&1 != 0 {
			simt.Set(D, l, simt.At[T](A, l)&simt.At[T](B, l))
		}
	}
}

// products compiles mul and mad: .lo, .hi and .wide.
func products[T, W simt.Integer](c *compiler, s *syntax.Statement, t syntax.Type, d int, x [4]int) (simt.Exec, error) {
	a, b, e := x[0], x[1], x[2]
	isMad := s.Op[0] == "mad"
	switch {
	case s.Has("cc") || s.Has("sat"):
		return nil, errUnknown
	case s.Has("lo"):
		if isMad {
			return mad[T](d, a, b, e), nil
		}
		return mul[T](d, a, b), nil
	case s.Has("wide"):
		if t.Size == 8 {
			return nil, errUnknown
		}
		wide := t
		wide.Size *= 2
		if !isMad {
			return func(w *simt.Warp, m uint32) { wideLanes[T, W](&w.Regs[d], &w.Regs[a], &w.Regs[b], m) }, nil
		}
		e, err := c.in(s.Args[3], wide)
		return func(w *simt.Warp, m uint32) { wideMadLanes[T, W](&w.Regs[d], &w.Regs[a], &w.Regs[b], &w.Regs[e], m) }, err
	case s.Has("hi"):
		hi := func(x, y T) T { return T(W(x) * W(y) >> (8 * t.Size)) }
		if t.Size == 8 {
			hi = func(x, y T) T {
				h, _ := bits.Mul64(uint64(x), uint64(y))
				if x < 0 {
					h -= uint64(y)
				}
				if y < 0 {
					h -= uint64(x)
				}
				return T(h)
			}
		}
		if isMad {
			return map3(d, a, b, e, func(x, y, z T) T { return hi(x, y) + z }), nil
		}
		return map2(d, a, b, hi), nil
	}
	return nil, errors.New("expected .lo, .hi or .wide")
}

//go:norace
//go:nocheckptr
func wideLanes[T, W simt.Integer](D, A, B *simt.Lanes, m uint32) {
	for l := range 32 {
		if m>>l&1 != 0 {
			simt.Set(D, l, W(simt.At[T](A, l))*W(simt.At[T](B, l)))
		}
	}
}

//go:norace
//go:nocheckptr
func wideMadLanes[T, W simt.Integer](D, A, B, C *simt.Lanes, m uint32) {
	for l := range 32 {
		if m>>l&1 != 0 {
			simt.Set(D, l, W(simt.At[T](A, l))*W(simt.At[T](B, l))+simt.At[W](C, l))
		}
	}
}
