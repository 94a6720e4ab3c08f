package narrow

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Form is a way to write float32. The numbers travel between members.
type Form uint8

// The forms.
const (
	// BFloat16 is the upper half: 8 bits of exponent, 7 of fraction. 2 bytes an element.
	BFloat16 Form = iota + 1
	// Int8 is a scale for each block, and 8 bits an element: multiples of the scale from −127 to
	// 127. What is not finite becomes NaN. 1 byte an element, and 4 a block.
	Int8
	// Int4 is the same with 4 bits an element: multiples from −7 to 7, two to a byte.
	Int4
)

// Known says whether it is one of the forms.
func (f Form) Known() bool { return f >= BFloat16 && f <= Int4 }

func (f Form) String() string {
	switch f {
	case BFloat16:
		return "bfloat16"
	case Int8:
		return "int8"
	case Int4:
		return "int4"
	}
	return fmt.Sprintf("Form(%d)", uint8(f))
}

// Block is how many elements are written together.
const Block = 256

const scaleBytes = 4

// most is the largest code; the one below the least, −most−1, is what is not finite.
func (f Form) most() int8 {
	if f == Int4 {
		return 7
	}
	return math.MaxInt8
}

// Bytes is what n elements take.
func (f Form) Bytes(n int) int {
	scales := (n + Block - 1) / Block * scaleBytes
	switch f {
	case BFloat16:
		return 2 * n
	case Int4:
		return (n+1)/2 + scales
	}
	return n + scales
}

// Write writes x, to which it adds lost first, and leaves in lost what rounding took from it. lost
// is as long as x; nil adds nothing, and leaves nothing. to has Bytes(len(x)). x stays as it is.
func (f Form) Write(to []byte, x, lost []float32) {
	var sum [Block]float32
	for len(x) > 0 {
		n := min(Block, len(x))
		v := x[:n]
		if lost != nil {
			for i, l := range lost[:n] {
				sum[i] = v[i] + l
			}
			v = sum[:n]
		}
		f.writeBlock(to, v)
		if lost != nil {
			f.readRest(lost[:n], v, to)
			lost = lost[n:]
		}
		to, x = to[f.Bytes(n):], x[n:]
	}
}

// readRest leaves what rounding took from the elements of a block that was written.
func (f Form) readRest(lost, v []float32, from []byte) {
	f.readBlock(lost, from)
	for i, back := range lost {
		lost[i] = rest(v[i], back)
	}
}

// rest is what rounding v to b takes away; nothing where a difference says nothing.
func rest(v, b float32) float32 {
	if d := v - b; d-d == 0 {
		return d
	}
	return 0
}

// Read reads as many elements as x has.
func (f Form) Read(x []float32, from []byte) {
	for len(x) > 0 {
		n := min(Block, len(x))
		f.readBlock(x[:n], from)
		x, from = x[n:], from[f.Bytes(n):]
	}
}

// writeBlock writes a block.
func (f Form) writeBlock(to []byte, x []float32) {
	if f == BFloat16 {
		to = to[:2*len(x)]
		for i, v := range x {
			u := upper(v)
			to[2*i], to[2*i+1] = byte(u), byte(u>>8)
		}
		return
	}
	var codes [Block]byte
	most := f.most()
	scale := scaleOf(x, float32(most))
	binary.LittleEndian.PutUint32(to, math.Float32bits(scale))
	to = to[scaleBytes:]
	if f == Int4 {
		encode(codes[:len(x)], x, scale, most)
		for i := 0; i < len(x); i += 2 {
			to[i/2] = codes[i]&15 | codes[i+1]<<4
		}
		return
	}
	encode(to[:len(x)], x, scale, most)
}

// encode writes a code for each element, in a byte.
func encode(to []byte, x []float32, scale float32, most int8) {
	by := 1 / scale
	if by > math.MaxFloat32 { // so small a scale has no inverse
		for i, v := range x {
			if v /= scale; scale == 0 {
				v = x[i] - x[i] // 0, but of what is not finite
			}
			to[i] = byte(code(v, most))
		}
		return
	}
	for i, v := range x {
		to[i] = byte(code(v*by, most))
	}
}

// upper rounds to the nearest bfloat16, of two the even one.
func upper(v float32) uint16 {
	bits := math.Float32bits(v)
	if v != v {
		return uint16(bits>>16) | 1<<6 // a NaN stays one
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// scaleOf is the step of which the largest finite element is so many.
func scaleOf(x []float32, steps float32) float32 {
	var most uint32 // as numbers that are not negative are ordered
	for _, v := range x {
		if bits := math.Float32bits(v) &^ (1 << 31); bits < infinite {
			most = max(most, bits)
		}
	}
	scale := math.Float32frombits(most) / steps
	if scale*steps > math.MaxFloat32 {
		scale = math.Nextafter32(scale, 0)
	}
	return scale
}

// infinite is the bits of the infinite.
const infinite = 0x7f800000

// code is the nearest whole number from −most to most, of two the even one.
func code(v float32, most int8) int8 {
	const shift = 3 << 22 // there float32 has no fractions
	switch {
	case v-v != 0:
		return -most - 1
	case v > float32(most):
		return most
	case v < -float32(most):
		return -most
	}
	return int8(math.Float32bits(v+shift) - math.Float32bits(shift))
}

// readBlock reads a block.
func (f Form) readBlock(x []float32, from []byte) {
	if f == BFloat16 {
		from = from[:2*len(x)]
		for i := range x {
			x[i] = math.Float32frombits(uint32(from[2*i])<<16 | uint32(from[2*i+1])<<24)
		}
		return
	}
	scale := math.Float32frombits(binary.LittleEndian.Uint32(from))
	from = from[scaleBytes:]
	nan := -f.most() - 1
	for i := range x {
		c := int8(0)
		if f == Int4 {
			c = int8(from[i/2]<<(4-i%2*4)) >> 4
		} else {
			c = int8(from[i])
		}
		if x[i] = float32(c) * scale; c == nan {
			x[i] = float32(math.NaN())
		}
	}
}

// Fold folds arrays of n elements that are written so, one or more, and writes the result to dst,
// which may be the first of them. fold folds rows of float32 into the first argument. lost is as
// Write has it.
func (f Form) Fold(dst []byte, n int, lost []float32, fold func(out []float32, rows ...[]float32), from ...[]byte) {
	all := make([]float32, len(from)*Block)
	rows, out := make([][]float32, len(from)), make([]float32, Block)
	for at := 0; at < n; at += Block {
		k := min(Block, n-at)
		off := f.Bytes(at)
		for r, b := range from {
			rows[r] = all[r*Block:][:k]
			f.readBlock(rows[r], b[off:])
		}
		fold(out[:k], rows...)
		var l []float32
		if lost != nil {
			l = lost[at : at+k]
		}
		f.Write(dst[off:off+f.Bytes(k)], out[:k], l)
	}
}
