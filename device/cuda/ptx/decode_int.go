package ptx

import (
	"errors"
	"math/bits"
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
func integers[T, W integer](c *compiler, s *stmt, t typ) (exec, error) {
	n := operandsOf(s.op[0])
	if len(s.args) != n+1 {
		return nil, errUnknown
	}
	d, x, err := c.regs(s, t, n)
	if err != nil {
		return nil, err
	}
	a, b := x[0], x[1]
	switch op := s.op[0]; op {
	case "mul", "mad":
		return products[T, W](c, s, t, d, x)
	case "shl", "shr":
		if b, err = c.in(s.args[2], typ{kind: 'u', size: 4}); err != nil {
			return nil, err
		}
		return shift[T](op == "shl", d, a, b), nil
	case "add", "sub":
		if s.oneOf("cc", "sat") != "" {
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
func shift[T integer](left bool, d, a, b int) exec {
	if left {
		return func(w *warp, m uint32) { leftLanes[T](&w.r[d], &w.r[a], &w.r[b], m) }
	}
	return func(w *warp, m uint32) { rightLanes[T](&w.r[d], &w.r[a], &w.r[b], m) }
}

//go:norace
//go:nocheckptr
func leftLanes[T integer](D, A, B *lanes, m uint32) {
	for l := range 32 {
		if m>>l&1 != 0 {
			set(D, l, at[T](A, l)<<at[uint32](B, l))
		}
	}
}

//go:norace
//go:nocheckptr
func rightLanes[T integer](D, A, B *lanes, m uint32) {
	for l := range 32 {
		if m>>l&1 != 0 {
			set(D, l, at[T](A, l)>>at[uint32](B, l))
		}
	}
}

func and[T integer](d, a, b int) exec {
	return func(w *warp, m uint32) { andLanes[T](&w.r[d], &w.r[a], &w.r[b], m) }
}

//go:norace
//go:nocheckptr
func andLanes[T integer](D, A, B *lanes, m uint32) {
	for l := range 32 {
		if m>>l&1 != 0 {
			set(D, l, at[T](A, l)&at[T](B, l))
		}
	}
}

// products compiles mul and mad: .lo, .hi and .wide.
func products[T, W integer](c *compiler, s *stmt, t typ, d int, x [4]int) (exec, error) {
	a, b, e := x[0], x[1], x[2]
	isMad := s.op[0] == "mad"
	switch {
	case s.has("cc") || s.has("sat"):
		return nil, errUnknown
	case s.has("lo"):
		if isMad {
			return mad[T](d, a, b, e), nil
		}
		return mul[T](d, a, b), nil
	case s.has("wide"):
		if t.size == 8 {
			return nil, errUnknown
		}
		wide := t
		wide.size *= 2
		if !isMad {
			return func(w *warp, m uint32) { wideLanes[T, W](&w.r[d], &w.r[a], &w.r[b], m) }, nil
		}
		e, err := c.in(s.args[3], wide)
		return func(w *warp, m uint32) { wideMadLanes[T, W](&w.r[d], &w.r[a], &w.r[b], &w.r[e], m) }, err
	case s.has("hi"):
		hi := func(x, y T) T { return T(W(x) * W(y) >> (8 * t.size)) }
		if t.size == 8 {
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
func wideLanes[T, W integer](D, A, B *lanes, m uint32) {
	for l := range 32 {
		if m>>l&1 != 0 {
			set(D, l, W(at[T](A, l))*W(at[T](B, l)))
		}
	}
}

//go:norace
//go:nocheckptr
func wideMadLanes[T, W integer](D, A, B, C *lanes, m uint32) {
	for l := range 32 {
		if m>>l&1 != 0 {
			set(D, l, W(at[T](A, l))*W(at[T](B, l))+at[W](C, l))
		}
	}
}
