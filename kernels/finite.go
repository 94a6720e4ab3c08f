package kernels

import (
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

// NonFinite tells whether anything in x is not a finite number: x → an int32 scalar, a
// [Finiteness].
type NonFinite struct{}

func (i NonFinite) String() string { return "NonFinite" }

// Infer takes one tensor of floats.
func (i NonFinite) Infer(in []Type) ([]Type, error) {
	if err := expectFloats(i, in, 1); err != nil {
		return nil, err
	}
	return []Type{{Dtype: device.Int32}}, nil
}

func (i NonFinite) flops(in, out []Type) int { return elems(in, 0) }
