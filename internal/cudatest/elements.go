package cudatest

import (
	"encoding/binary"
	"math"

	"github.com/weft-project/weft/device/cuda"
)

// Encode stores numbers as elements of a type, which holds them exactly: see Rounded.
func Encode(e cuda.Elem, v []float64) []byte {
	var out []byte
	for _, x := range v {
		switch e {
		case cuda.E4M3, cuda.E5M2:
			for b := range 256 {
				if math.Float64bits(eight(e, byte(b))) == math.Float64bits(x) {
					out = append(out, byte(b))
				}
			}
		case cuda.F32:
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(x)))
		case cuda.F64:
			out = binary.LittleEndian.AppendUint64(out, math.Float64bits(x))
		case cuda.BF16:
			out = binary.LittleEndian.AppendUint16(out, uint16(math.Float32bits(float32(x))>>16))
		case cuda.F16: // but for the smallest
			frac, exp := math.Frexp(math.Abs(x))
			h := uint16(0)
			if x != 0 {
				h = uint16(exp+14)<<10 | uint16(frac*2048)&1023
			}
			if x < 0 {
				h |= 1 << 15
			}
			out = binary.LittleEndian.AppendUint16(out, h)
		}
	}
	return out
}

// Decode reads elements of a type.
func Decode(e cuda.Elem, raw []byte) []float64 {
	var out []float64
	for ; len(raw) > 0; raw = raw[e.Size():] {
		switch e {
		case cuda.E4M3, cuda.E5M2:
			out = append(out, eight(e, raw[0]))
		case cuda.F32:
			out = append(out, float64(math.Float32frombits(binary.LittleEndian.Uint32(raw))))
		case cuda.F64:
			out = append(out, math.Float64frombits(binary.LittleEndian.Uint64(raw)))
		case cuda.BF16:
			out = append(out, float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(raw))<<16)))
		case cuda.F16:
			h := binary.LittleEndian.Uint16(raw)
			x := math.Ldexp(float64(1024+h&1023), int(h>>10&31)-25)
			if h>>10&31 == 0 {
				x = math.Ldexp(float64(h&1023), -24)
			}
			if h>>15 == 1 {
				x = -x
			}
			out = append(out, x)
		}
	}
	return out
}

// eight is the number that 8 bits are.
func eight(e cuda.Elem, b byte) float64 {
	mantissa, bias := 3, 7
	if e == cuda.E5M2 {
		mantissa, bias = 2, 15
	}
	exp, frac := int(b&127)>>mantissa, int(b)&(1<<mantissa-1)
	v := math.Ldexp(float64(frac), 1-bias-mantissa)
	switch {
	case e == cuda.E4M3 && b&127 == 127, e == cuda.E5M2 && exp == 31 && frac != 0:
		return math.NaN()
	case e == cuda.E5M2 && exp == 31:
		v = math.Inf(1)
	case exp > 0:
		v = math.Ldexp(float64(frac+1<<mantissa), exp-bias-mantissa)
	}
	return math.Copysign(v, 1-2*float64(b>>7))
}

// Rounded is a number with so many significant bits, the nearest one, of two the even one.
func Rounded(v float64, bits int) float64 {
	frac, exp := math.Frexp(v)
	return math.Ldexp(math.RoundToEven(math.Ldexp(frac, bits)), exp-bits)
}

// Bits is how many significant bits a type's elements have.
func Bits(e cuda.Elem) int {
	return [...]int{cuda.F32: 24, cuda.F64: 53, cuda.BF16: 8, cuda.F16: 11, cuda.E4M3: 4, cuda.E5M2: 3}[e]
}

// GELU is the one with tanh.
func GELU(x float64) float64 {
	return .5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+.044715*x*x*x)))
}
