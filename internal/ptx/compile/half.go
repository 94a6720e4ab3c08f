package compile

import (
	"math"

	"github.com/weft-project/weft/internal/ptx/simt"
	"github.com/weft-project/weft/internal/ptx/syntax"
)

// fromHalf is the value of an f16.
func fromHalf(h uint16) float64 {
	exp, frac := int(h>>10&31), float64(h&1023)
	var v float64
	switch exp {
	case 0:
		v = math.Ldexp(frac, -24)
	case 31:
		if v = math.Inf(1); frac != 0 {
			return math.NaN()
		}
	default:
		v = math.Ldexp(1024+frac, exp-25)
	}
	if h>>15 != 0 {
		v = -v
	}
	return v
}

// narrow rounds a float64 to a number of bits after the first, and no exponent below least.
func narrow(f float64, bits, least int, r byte) float64 {
	if f == 0 || f != f || math.IsInf(f, 0) {
		return f
	}
	_, e := math.Frexp(f)
	unit := max(e-1, least) - bits
	x := math.Ldexp(f, -unit) // exact: f32 and f16 values have few bits, and float64's range is wide
	switch {
	case r == 'z':
		x = math.Trunc(x)
	case r == 'm':
		x = math.Floor(x)
	case r == 'p':
		x = math.Ceil(x)
	case r == 'a': // to nearest, ties away
		x = math.Round(x)
	default:
		x = math.RoundToEven(x)
	}
	return math.Copysign(math.Ldexp(x, unit), f)
}

// toHalf rounds to an f16.
func toHalf(f float64, r byte) uint16 {
	if f != f {
		return 0x7fff
	}
	var sign uint16
	if math.Signbit(f) {
		sign = 0x8000
	}
	v := math.Abs(narrow(f, 10, -14, r))
	switch {
	case v == 0:
		return sign
	case v >= 65536:
		if !math.IsInf(f, 0) && (r == 'z' || r == 'm' && sign == 0 || r == 'p' && sign != 0) {
			return sign | 0x7bff
		}
		return sign | 0x7c00
	case v < math.Ldexp(1, -14):
		return sign | uint16(math.Ldexp(v, 24))
	}
	frac, e := math.Frexp(v)
	return sign | uint16(e+14)<<10 | uint16(math.Ldexp(frac, 11))&1023
}

// toBrain rounds to a bf16.
func toBrain(f float64, r byte) uint16 {
	if f != f {
		return 0x7fff
	}
	v := narrow(f, 7, -126, r)
	if math.Abs(v) >= math.Ldexp(1, 128) && !math.IsInf(f, 0) && (r == 'z' || r == 'm' && f > 0 || r == 'p' && f < 0) {
		v = math.Copysign(math.Float64frombits(0x47efe00000000000), f)
	}
	return uint16(math.Float32bits(float32(v)) >> 16)
}

// toTensor rounds to a tf32: 10 bits, ties away from zero, in an f32's place.
func toTensor(f float64) uint64 {
	if f != f {
		return 0x7fffffff
	}
	return uint64(math.Float32bits(float32(narrow(f, 10, -126, 'a'))))
}

// half compiles arithmetic on f16 and bf16, alone and in pairs.
func (c *compiler) half(s *syntax.Statement, t syntax.Type) (simt.Exec, error) {
	n := operandsOf(s.Op[0])
	d, x, err := c.regs(s, t, n)
	if err != nil {
		return nil, err
	}
	one := t
	one.Size, one.Pair = 2, false
	read, write := reader(one), writer(one, rounding(s))
	relu, sat := s.Has("relu"), s.Has("sat")
	var f func(a, b, e float64) float64
	switch op := s.Op[0]; op {
	case "fma": // a product of two is exact in a float64
		f = func(a, b, e float64) float64 { return odd(a*b, e) }
	case "add":
		f = func(a, b, _ float64) float64 { return odd(a, b) }
	case "sub":
		f = func(a, b, _ float64) float64 { return odd(a, -b) }
	case "mul":
		f = func(a, b, _ float64) float64 { return a * b }
	case "min", "max":
		g := extreme[float64](s)
		f = func(a, b, _ float64) float64 { return g(a, b) }
	case "neg":
		f = func(a, _, _ float64) float64 { return -a }
	case "abs":
		f = func(a, _, _ float64) float64 { return math.Abs(a) }
	default:
		g := approximate(op)
		if g == nil {
			return nil, errUnknown
		}
		f = func(a, _, _ float64) float64 { return g(a) }
	}
	calc := func(a, b, e uint64) uint64 {
		v := f(read(a), read(b), read(e))
		if relu && v < 0 || sat && !(v > 0) {
			v = 0
		}
		if sat && v > 1 {
			v = 1
		}
		return write(v)
	}
	return func(w *simt.Warp, m uint32) {
		D, A, B, C := &w.Regs[d], &w.Regs[x[0]], &w.Regs[x[0]], &w.Regs[x[0]]
		if n > 1 {
			B = &w.Regs[x[1]]
		}
		if n > 2 {
			C = &w.Regs[x[2]]
		}
		for l := range 32 {
			if m>>l&1 == 0 {
				continue
			}
			v := calc(A[l], B[l], C[l])
			if t.Pair {
				v |= calc(A[l]>>16, B[l]>>16, C[l]>>16) << 16
			}
			D[l] = v
		}
	}, nil
}

// cvtPair compiles cvt.rn.bf16x2.f32 d, hi, lo.
func (c *compiler) cvtPair(s *syntax.Statement, to, from syntax.Type) (simt.Exec, error) {
	d, x, err := c.regs(s, from, 2)
	if err != nil {
		return nil, err
	}
	one := to
	one.Size, one.Pair = 2, false
	read, write := reader(from), writer(one, rounding(s))
	if from != (syntax.Type{Kind: 'f', Size: 4}) {
		return nil, errUnknown
	}
	relu := s.Has("relu")
	calc := func(v uint64) uint64 {
		f := read(v)
		if relu && f < 0 {
			f = 0
		}
		return write(f)
	}
	return func(w *simt.Warp, m uint32) {
		D, A, B := &w.Regs[d], &w.Regs[x[0]], &w.Regs[x[1]]
		for l := range 32 {
			if m>>l&1 != 0 {
				D[l] = calc(A[l])<<16 | calc(B[l])
			}
		}
	}, nil
}
