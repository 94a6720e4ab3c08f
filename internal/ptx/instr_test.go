package ptx

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/ptx/syntax"
)

// instruction is one with its meaning; operands and result are bits of registers as wide as letters
// say: h 16, w 32, d 64.
type instruction struct {
	text string // OP, then operands as letters, the result first
	want func(a, b, c uint64) uint64
}

// odds are bit patterns that are in the way of most who get arithmetic wrong.
func odds(width int) []uint64 {
	ints := []uint64{0, 1, 2, 31, 32, 33, 63, 64, 255, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1<<63 - 1, 1 << 63, ^uint64(0), ^uint64(1)}
	floats := []float64{0, math.Copysign(0, -1), 1, -1, 0.5, 1.5, 2.5, -2.5, 65504, 65520, 1e-8, 5.96e-8, 3e38, 1e-40, -1e-45, 2147483647, 2147483648, -2147483649, 4294967296, 1e19,
		math.Inf(1), math.Inf(-1), math.NaN(), math.Pi}
	for _, f := range floats {
		switch width {
		case 64:
			ints = append(ints, math.Float64bits(f))
		case 32:
			ints = append(ints, uint64(math.Float32bits(float32(f))))
		default:
			ints = append(ints, uint64(nearestHalf(float32(f))), uint64(nearestBrain(float32(f))))
		}
	}
	return ints
}

func f32(v uint64) float32 { return math.Float32frombits(uint32(v)) }
func f64(v uint64) float64 { return math.Float64frombits(v) }
func b32(f float32) uint64 { return uint64(math.Float32bits(f)) }
func i32(v uint64) int32   { return int32(v) }

// normal32 is what .ftz makes of a number.
func normal32(v float32) float32 {
	if math.Abs(float64(v)) < 0x1p-126 {
		return float32(math.Copysign(0, float64(v)))
	}
	return v
}

// exactly rounds a sum of products of finite numbers once.
func exactly(mode big.RoundingMode, a, b, c float32) float32 {
	if x := float64(a)*float64(b) + float64(c); x != x || math.IsInf(x, 0) || x == 0 || math.IsInf(float64(c), 0) {
		return float32(x)
	}
	wide := func(f float32) *big.Float { return new(big.Float).SetPrec(2000).SetFloat64(float64(f)) }
	sum := new(big.Float).SetPrec(2000).Mul(wide(a), wide(b))
	sum.Add(sum, wide(c))
	e := sum.MantExp(nil) // numbers below the normal ones have fewer bits
	prec := min(24, 24+e+125)
	if prec < 1 {
		tiny := math.Float32frombits(1)
		half := wide(tiny)
		half.Mul(half, big.NewFloat(0.5))
		switch s := sum.Sign(); {
		case mode == big.ToPositiveInf && s > 0, mode == big.ToNegativeInf && s < 0, mode == big.ToNearestEven && new(big.Float).Abs(sum).Cmp(half) > 0:
			return tiny * float32(s)
		case s < 0:
			return float32(math.Copysign(0, -1))
		}
		return 0
	}
	r := new(big.Float).SetPrec(uint(prec)).SetMode(mode).Set(sum)
	f, _ := r.Float64()
	if math.Abs(f) > math.MaxFloat32 && mode != big.ToNearestEven {
		inf := math.Inf(int(math.Copysign(1, f)))
		if mode == big.ToZero || mode == big.ToPositiveInf && f < 0 || mode == big.ToNegativeInf && f > 0 {
			return float32(math.Copysign(math.MaxFloat32, f))
		}
		return float32(inf)
	}
	return float32(f)
}

func nearest(f float64) float32 { return float32(f) }

func instructions() []instruction {
	sx := func(v uint64, n int) int64 { return int64(v<<(64-n)) >> (64 - n) }
	saturating := func(f, lo, hi float64) float64 { return max(lo, min(hi, f)) }
	fmas := map[string]big.RoundingMode{"rn": big.ToNearestEven, "rz": big.ToZero, "rp": big.ToPositiveInf, "rm": big.ToNegativeInf}
	out := []instruction{
		{"add.u16 hhh", func(a, b, _ uint64) uint64 { return uint64(uint16(a + b)) }},
		{"sub.s32 www", func(a, b, _ uint64) uint64 { return uint64(uint32(a - b)) }},
		{"mul.lo.s64 ddd", func(a, b, _ uint64) uint64 { return a * b }},
		{"mul.hi.u32 www", func(a, b, _ uint64) uint64 { return a & (1<<32 - 1) * (b & (1<<32 - 1)) >> 32 }},
		{"mul.hi.s32 www", func(a, b, _ uint64) uint64 { return uint64(uint32(int64(i32(a)) * int64(i32(b)) >> 32)) }},
		{"mul.hi.u64 ddd", func(a, b, _ uint64) uint64 { h, _ := bits.Mul64(a, b); return h }},
		{"mul.hi.s64 ddd", func(a, b, _ uint64) uint64 {
			p := new(big.Int).Mul(big.NewInt(int64(a)), big.NewInt(int64(b)))
			return uint64(p.Rsh(p, 64).Int64())
		}},
		{"mul.wide.s16 whh", func(a, b, _ uint64) uint64 { return uint64(uint32(int32(int16(a)) * int32(int16(b)))) }},
		{"mad.wide.u32 dwwd", func(a, b, c uint64) uint64 { return uint64(uint32(a))*uint64(uint32(b)) + c }},
		{"mad.wide.s32 dwwd", func(a, b, c uint64) uint64 { return uint64(int64(i32(a))*int64(i32(b))) + c }},
		{"mad.hi.s32 wwww", func(a, b, c uint64) uint64 { return uint64(uint32(int64(i32(a))*int64(i32(b))>>32) + uint32(c)) }},
		{"shl.b32 www", func(a, b, _ uint64) uint64 { return uint64(uint32(a) << uint32(b)) }},
		{"shr.s32 www", func(a, b, _ uint64) uint64 { return uint64(uint32(i32(a) >> uint32(b))) }},
		{"shr.u64 ddw", func(a, b, _ uint64) uint64 { return a >> uint32(b) }},
		{"shr.s16 hhw", func(a, b, _ uint64) uint64 { return uint64(uint16(int16(a) >> uint32(b))) }},
		{"min.s64 ddd", func(a, b, _ uint64) uint64 { return uint64(min(int64(a), int64(b))) }},
		{"max.u32 www", func(a, b, _ uint64) uint64 { return uint64(max(uint32(a), uint32(b))) }},
		{"abs.s32 ww", func(a, _, _ uint64) uint64 { return uint64(uint32(max(i32(a), -i32(a)))) }},
		{"popc.b64 wd", func(a, _, _ uint64) uint64 { return uint64(bits.OnesCount64(a)) }},
		{"clz.b32 ww", func(a, _, _ uint64) uint64 { return uint64(bits.LeadingZeros32(uint32(a))) }},
		{"brev.b64 dd", func(a, _, _ uint64) uint64 { return bits.Reverse64(a) }},
		{"bfind.u32 ww", func(a, _, _ uint64) uint64 { return uint64(uint32(bits.Len32(uint32(a)) - 1)) }},
		{"shf.l.wrap.b32 wwww", func(a, b, c uint64) uint64 {
			return uint64(uint32((b<<32 | a&(1<<32-1)) << (c & 31) >> 32))
		}},
		{"shf.r.clamp.b32 wwww", func(a, b, c uint64) uint64 {
			return uint64(uint32((b<<32 | a&(1<<32-1)) >> min(uint32(c), 32)))
		}},
		{"bfe.u32 wwww", func(a, b, c uint64) uint64 {
			var v uint64
			for k := range c & 255 {
				if at := b&255 + k; at < 32 && k < 32 {
					v |= a >> at & 1 << k
				}
			}
			return v
		}},
		{"bfe.s64 ddww", func(a, b, c uint64) uint64 {
			pos, n := b&255, c&255
			if n == 0 {
				return 0
			}
			sign := a >> min(pos+n-1, 63) & 1
			var v uint64
			for k := range uint64(64) {
				bit := sign
				if k < n && pos+k < 64 {
					bit = a >> (pos + k) & 1
				}
				v |= bit << k
			}
			return v
		}},
		{"add.f32 www", func(a, b, _ uint64) uint64 { return b32(f32(a) + f32(b)) }},
		{"sub.rn.f32 www", func(a, b, _ uint64) uint64 { return b32(f32(a) - f32(b)) }},
		{"mul.f32 www", func(a, b, _ uint64) uint64 { return b32(f32(a) * f32(b)) }},
		{"div.rn.f32 www", func(a, b, _ uint64) uint64 { return b32(f32(a) / f32(b)) }},
		{"sqrt.rn.f32 ww", func(a, _, _ uint64) uint64 { return b32(float32(math.Sqrt(float64(f32(a))))) }},
		{"rcp.rn.f32 ww", func(a, _, _ uint64) uint64 { return b32(1 / f32(a)) }},
		{"add.f64 ddd", func(a, b, _ uint64) uint64 { return math.Float64bits(f64(a) + f64(b)) }},
		{"div.rn.f64 ddd", func(a, b, _ uint64) uint64 { return math.Float64bits(f64(a) / f64(b)) }},
		{"fma.rn.f64 dddd", func(a, b, c uint64) uint64 { return math.Float64bits(math.FMA(f64(a), f64(b), f64(c))) }},
		{"mul.ftz.f32 www", func(a, b, _ uint64) uint64 { return b32(normal32(normal32(f32(a)) * normal32(f32(b)))) }},
		{"add.sat.f32 www", func(a, b, _ uint64) uint64 {
			v := f32(a) + f32(b)
			if v != v {
				v = 0
			}
			return b32(max(0, min(1, v)) + 0)
		}},
		{"cvt.rni.s32.f32 ww", func(a, _, _ uint64) uint64 {
			f := math.RoundToEven(float64(f32(a)))
			if f != f {
				return 0
			}
			return uint64(uint32(int64(saturating(f, math.MinInt32, math.MaxInt32))))
		}},
		{"cvt.rzi.u32.f32 ww", func(a, _, _ uint64) uint64 {
			f := math.Trunc(float64(f32(a)))
			if f != f {
				return 0
			}
			return uint64(saturating(f, 0, math.MaxUint32))
		}},
		{"cvt.rn.f32.u64 wd", func(a, _, _ uint64) uint64 { return b32(float32(a)) }},
		{"cvt.rn.f32.s64 wd", func(a, _, _ uint64) uint64 { return b32(float32(int64(a))) }},
		{"cvt.rn.f32.s32 ww", func(a, _, _ uint64) uint64 { return b32(float32(i32(a))) }},
		{"cvt.rn.f64.u32 dw", func(a, _, _ uint64) uint64 { return math.Float64bits(float64(uint32(a))) }},
		{"cvt.rn.f32.f64 wd", func(a, _, _ uint64) uint64 { return b32(nearest(f64(a))) }},
		{"cvt.f64.f32 dw", func(a, _, _ uint64) uint64 { return math.Float64bits(float64(f32(a))) }},
		{"cvt.rmi.f32.f32 ww", func(a, _, _ uint64) uint64 { return b32(float32(math.Floor(float64(f32(a))))) }},
		{"cvt.s64.s32 dw", func(a, _, _ uint64) uint64 { return uint64(int64(i32(a))) }},
		{"cvt.s32.s8 ww", func(a, _, _ uint64) uint64 { return uint64(uint32(sx(a, 8))) }},
		{"cvt.u32.u16 wh", func(a, _, _ uint64) uint64 { return uint64(uint16(a)) }},
		{"cvt.sat.s8.s32 ww", func(a, _, _ uint64) uint64 { return uint64(uint32(max(-128, min(127, i32(a))))) }},
		{"cvt.f32.f16 wh", func(a, _, _ uint64) uint64 { return b32(halfValue(uint16(a))) }},
		{"cvt.rn.f16.f32 hw", func(a, _, _ uint64) uint64 { return uint64(nearestHalf(f32(a))) }},
		{"cvt.rn.bf16.f32 hw", func(a, _, _ uint64) uint64 { return uint64(nearestBrain(f32(a))) }},
	}
	for r, mode := range fmas {
		out = append(out, instruction{"fma." + r + ".f32 wwww", func(a, b, c uint64) uint64 { return b32(exactly(mode, f32(a), f32(b), f32(c))) }},
			instruction{"add." + r + ".f32 www", func(a, b, _ uint64) uint64 { return b32(exactly(mode, f32(a), 1, f32(b))) }})
	}
	return out
}

// halfValue and nearestHalf are the plainest f16 there is: all values, and a look through them.
func halfValue(h uint16) float32 {
	e, frac := int(h>>10&31), float64(h&1023)/1024
	v := math.Ldexp(1+frac, e-15)
	if e == 0 {
		v = math.Ldexp(frac, -14)
	}
	if e == 31 {
		if v = math.Inf(1); frac != 0 {
			v = math.NaN()
		}
	}
	if h&0x8000 != 0 {
		v = -v
	}
	return float32(v)
}

func nearestHalf(f float32) uint16 {
	if f != f {
		return 0x7fff
	}
	sign := uint16(math.Float32bits(f) >> 31 << 15)
	x := math.Abs(float64(f))
	if x >= 65520 {
		return sign | 0x7c00
	}
	best, far := uint16(0), math.Inf(1)
	lo := uint16(0)
	if x > 1e-4 { // no need to look at all
		lo = uint16(math.Ilogb(x)+14) << 10
	}
	for h := lo; h < 0x7c00 && h <= lo+4096; h++ {
		d := math.Abs(float64(halfValue(h)) - x)
		if d < far || d == far && h&1 == 0 {
			best, far = h, d
		}
	}
	return sign | best
}

func nearestBrain(f float32) uint16 {
	if f != f {
		return 0x7fff
	}
	b := math.Float32bits(f)
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

func TestInstructionsComputeWhatGoDoes(t *testing.T) {
	list := instructions()
	widths := map[byte]int{'h': 16, 'w': 32, 'd': 64}
	var text strings.Builder
	text.WriteString(".version 7.8\n.target sm_80\n.address_size 64\n")
	for k, in := range list {
		op, shape, _ := strings.Cut(in.text, " ")
		fmt.Fprintf(&text, ".visible .entry k%d(.param .u64 in, .param .u64 out)\n{\n.reg .b16 %%h<9>; .reg .b32 %%w<9>; .reg .b64 %%d<9>, %%x<9>;\n", k)
		text.WriteString("ld.param.u64 %x0, [in]; ld.param.u64 %x1, [out]; mov.u32 %w0, %tid.x; mul.wide.u32 %x2, %w0, 24; add.u64 %x0, %x0, %x2; mul.wide.u32 %x2, %w0, 8; add.u64 %x1, %x1, %x2;\n")
		var args []string
		for j, c := range shape {
			args = append(args, fmt.Sprintf("%%%c%d", c, j+1))
			if j > 0 {
				fmt.Fprintf(&text, "ld.global.u%d %s, [%%x0+%d];\n", widths[byte(c)], args[j], 8*(j-1))
			}
		}
		fmt.Fprintf(&text, "%s %s;\nmov.u64 %%x3, 0;\nst.global.u64 [%%x1], %%x3;\nst.global.u%d [%%x1], %s;\nret;\n}\n", op, strings.Join(args, ", "), widths[shape[0]], args[0])
	}
	r := newRig(t, Config{}, text.String())
	const n = 512
	for k, in := range list {
		_, shape, _ := strings.Cut(in.text, " ")
		values := make([]uint64, 3*n)
		for j := range values {
			values[j] = rand.Uint64()
			if kind := j % 3; rand.IntN(2) == 0 && kind < len(shape)-1 {
				o := odds(widths[shape[kind+1]])
				values[j] = o[rand.IntN(len(o))]
			} else if rand.IntN(3) == 0 {
				values[j] = b32(float32(rand.NormFloat64()))
			}
		}
		out := up(r, make([]uint64, n))
		require.NoError(t, r.launch(fmt.Sprintf("k%d", k), 1, n, 0, up(r, values), out), in.text)
		for j, got := range down[uint64](r, out, n) {
			a := values[3*j:]
			want := in.want(a[0], a[1], a[2])
			mask := ^uint64(0) >> (64 - widths[shape[0]])
			if got == want&mask || bothNaN(in.text, got, want) {
				continue
			}
			require.Failf(t, in.text, "of %#x, %#x, %#x: %#x, expected %#x", a[0], a[1], a[2], got, want&mask)
		}
	}
}

// bothNaN says that a float result is NaN, and should be: which NaN is not told.
func bothNaN(text string, a, b uint64) bool {
	op, _, _ := strings.Cut(text, " ")
	t := (&syntax.Statement{Op: strings.Split(op, ".")}).Types()[0]
	switch t {
	case syntax.Type{Kind: 'f', Size: 4}:
		return f32(a) != f32(a) && f32(b) != f32(b)
	case syntax.Type{Kind: 'f', Size: 8}:
		return f64(a) != f64(a) && f64(b) != f64(b)
	}
	return false
}
