package kernels

import (
	"math"

	"github.com/weft-project/weft/device"
)

// Finiteness is what [NonFinite] finds.
type Finiteness int32

// The findings; a NaN counts for more than an infinity.
const (
	AllFinite Finiteness = iota
	HasInfinity
	HasNaN
)

// NonFinite tells whether anything in x is not a finite number: x → an int32 scalar, a [Finiteness].
type NonFinite struct{}

func (i NonFinite) String() string { return "NonFinite" }

// Infer takes one tensor of floats.
func (i NonFinite) Infer(in []Type) ([]Type, error) {
	if err := expectFloats(i, in, 1); err != nil {
		return nil, err
	}
	return []Type{{Dtype: device.Int32}}, nil
}

func nonFiniteBody(d device.Dtype) body {
	if d == device.Float32 {
		return finiteness[float32]
	}
	return finiteness[float64]
}

func finiteness[T device.Float](outs, ins [][]byte) error {
	o, x, found := device.As[int32](outs[0]), device.As[T](ins[0]), AllFinite
	if !finite(x) {
		found = HasInfinity
		for _, v := range x {
			if v != v {
				found = HasNaN
				break
			}
		}
	}
	o[0] = int32(found)
	return nil
}

// finite looks at blocks: 0·v is 0 for every finite v, and NaN for all others. Four sums need not wait for each other.
func finite[T device.Float](x []T) bool {
	const block = 1024
	for len(x) > 0 {
		b := x[:min(block, len(x))]
		x = x[len(b):]
		var s0, s1, s2, s3 T
		for ; len(b) >= 4; b = b[4:] {
			s0 += b[0] * 0
			s1 += b[1] * 0
			s2 += b[2] * 0
			s3 += b[3] * 0
		}
		for _, v := range b {
			s0 += v * 0
		}
		if s := (s0 + s1) + (s2 + s3); s != 0 || math.IsNaN(float64(s)) {
			return false
		}
	}
	return true
}
