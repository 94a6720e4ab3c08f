package compile

import (
	"math/bits"

	"github.com/weft-project/weft/internal/ptx/simt"
	"github.com/weft-project/weft/internal/ptx/syntax"
)

// bits compiles instructions on bit patterns.
func (c *compiler) bits(s *syntax.Statement) (simt.Exec, error) {
	u32 := syntax.Type{Kind: 'u', Size: 4}
	ts := s.Types()
	if len(ts) == 0 {
		return nil, errUnknown
	}
	t := ts[0]
	n := len(s.Args) - 1
	if n < 1 || n > 4 {
		return nil, errUnknown
	}
	if s.Op[0] == "lop3" {
		return c.lop3(s)
	}
	d, x, err := c.regs(s, u32, n)
	if err != nil {
		return nil, err
	}
	is := func(op string, size, operands int) bool { return s.Op[0] == op && t.Size == size && n == operands }
	switch {
	case is("popc", 4, 1):
		return map1(d, x[0], func(v uint32) uint32 { return uint32(bits.OnesCount32(v)) }), nil
	case is("popc", 8, 1):
		return map1(d, x[0], func(v uint64) uint32 { return uint32(bits.OnesCount64(v)) }), nil
	case is("clz", 4, 1):
		return map1(d, x[0], func(v uint32) uint32 { return uint32(bits.LeadingZeros32(v)) }), nil
	case is("clz", 8, 1):
		return map1(d, x[0], func(v uint64) uint32 { return uint32(bits.LeadingZeros64(v)) }), nil
	case is("brev", 4, 1):
		return map1(d, x[0], bits.Reverse32), nil
	case is("brev", 8, 1):
		return map1(d, x[0], bits.Reverse64), nil
	case is("bfind", 4, 1) || is("bfind", 8, 1):
		return bfind(d, x[0], t, s.Has("shiftamt")), nil
	case is("prmt", 4, 3) && len(s.Op) == 2:
		return map3(d, x[0], x[1], x[2], prmt), nil
	case is("shf", 4, 3):
		return shf(s, d, x)
	case s.Op[0] == "bfe" && n == 3:
		return bfe(d, x, t), nil
	case s.Op[0] == "bfi" && n == 4:
		return bfi(d, x, t), nil
	case is("mul24", 4, 2) && s.Has("lo"):
		return map2(d, x[0], x[1], func(a, b uint32) uint32 { return cut24(a, t) * cut24(b, t) }), nil
	case is("mad24", 4, 3) && s.Has("lo"):
		return map3(d, x[0], x[1], x[2], func(a, b, e uint32) uint32 { return cut24(a, t)*cut24(b, t) + e }), nil
	case is("sad", 4, 3) && t.Signed():
		return map3(d, x[0], x[1], x[2], func(a, b, e int32) int32 { return e + max(a, b) - min(a, b) }), nil
	case is("sad", 4, 3):
		return map3(d, x[0], x[1], x[2], func(a, b, e uint32) uint32 { return e + max(a, b) - min(a, b) }), nil
	}
	return nil, errUnknown
}

func cut24(v uint32, t syntax.Type) uint32 {
	if t.Signed() {
		return uint32(int32(v<<8) >> 8)
	}
	return v << 8 >> 8
}

// prmt picks four of the eight bytes of y:x; the top bit of a choice repeats the byte's sign.
func prmt(x, y, choice uint32) uint32 {
	all := uint64(y)<<32 | uint64(x)
	var out uint32
	for k := range 4 {
		sel := choice >> (4 * k) & 15
		b := byte(all >> (8 * (sel & 7)))
		if sel&8 != 0 {
			b = byte(int8(b) >> 7)
		}
		out |= uint32(b) << (8 * k)
	}
	return out
}

// shf shifts two words as one.
func shf(s *syntax.Statement, d int, x [4]int) (simt.Exec, error) {
	wrap := s.Has("wrap")
	if !wrap && !s.Has("clamp") {
		return nil, errUnknown
	}
	by := func(n uint32) uint32 {
		if wrap {
			return n & 31
		}
		return min(n, 32)
	}
	switch {
	case s.Has("l"):
		return map3(d, x[0], x[1], x[2], func(lo, hi, n uint32) uint32 {
			return uint32((uint64(hi)<<32 | uint64(lo)) << by(n) >> 32)
		}), nil
	case s.Has("r"):
		return map3(d, x[0], x[1], x[2], func(lo, hi, n uint32) uint32 {
			return uint32((uint64(hi)<<32 | uint64(lo)) >> by(n))
		}), nil
	}
	return nil, errUnknown
}

// bfe takes a field of bits out, and extends it by its sign where the type has one.
func bfe(d int, x [4]int, t syntax.Type) simt.Exec {
	width := uint32(8 * t.Size)
	one := func(v uint64, pos, n uint32) uint64 {
		pos, n = pos&255, n&255
		if t.Size == 4 {
			v &= 1<<32 - 1
		}
		var sign uint64
		if t.Signed() && n > 0 {
			sign = v >> min(pos+n-1, width-1) & 1
		}
		field := v >> pos
		if pos >= width {
			field = 0
		}
		if have := min(n, width-min(pos, width)); have < 64 {
			field &= 1<<have - 1
			if sign != 0 {
				field |= ^uint64(0) << have
			}
		}
		return field
	}
	return func(w *simt.Warp, m uint32) {
		D, A, B, C := &w.Regs[d], &w.Regs[x[0]], &w.Regs[x[1]], &w.Regs[x[2]]
		for l := range 32 {
			if m>>l&1 != 0 {
				D[l] = one(A[l], uint32(B[l]), uint32(C[l]))
			}
		}
	}
}

// bfi puts a field of bits in.
func bfi(d int, x [4]int, t syntax.Type) simt.Exec {
	width := uint32(8 * t.Size)
	return func(w *simt.Warp, m uint32) {
		D, A, B, P, N := &w.Regs[d], &w.Regs[x[0]], &w.Regs[x[1]], &w.Regs[x[2]], &w.Regs[x[3]]
		for l := range 32 {
			if m>>l&1 == 0 {
				continue
			}
			pos, n := uint32(P[l])&255, min(uint32(N[l])&255, width)
			mask := uint64(1)<<n - 1
			if pos >= width {
				mask = 0
			}
			D[l] = B[l]&^(mask<<pos) | A[l]&mask<<pos
		}
	}
}

// bfind finds the highest bit that is not the sign.
func bfind(d, a int, t syntax.Type, amount bool) simt.Exec {
	return func(w *simt.Warp, m uint32) {
		D, A := &w.Regs[d], &w.Regs[a]
		for l := range 32 {
			if m>>l&1 == 0 {
				continue
			}
			v := A[l]
			if t.Size == 4 {
				v &= 1<<32 - 1
				if t.Signed() && int32(v) < 0 {
					v = uint64(^uint32(v))
				}
			} else if t.Signed() && int64(v) < 0 {
				v = ^v
			}
			n := uint32(bits.Len64(v) - 1)
			if amount && n != ^uint32(0) {
				n = uint32(8*t.Size) - 1 - n
			}
			D[l] = uint64(n)
		}
	}
}

// lop3 is any function of three bits, by its table.
func (c *compiler) lop3(s *syntax.Statement) (simt.Exec, error) {
	if len(s.Args) != 5 || s.Args[4].Kind != syntax.OperandImm || len(s.Op) != 2 {
		return nil, errUnknown
	}
	table := s.Args[4].Imm
	short := *s
	short.Args = s.Args[:4]
	d, x, err := c.regs(&short, syntax.Type{Kind: 'b', Size: 4}, 3)
	if err != nil || table > 255 {
		return nil, err
	}
	return map3(d, x[0], x[1], x[2], func(a, b, e uint32) uint32 {
		var out uint32
		for k := range 8 {
			if table>>k&1 == 0 {
				continue
			}
			term := ^uint32(0)
			for j, v := range []uint32{e, b, a} {
				if k>>j&1 == 0 {
					v = ^v
				}
				term &= v
			}
			out |= term
		}
		return out
	}), nil
}
