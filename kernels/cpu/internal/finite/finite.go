package finite

import (
	"math"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/vec"
)

// All says that all of x are finite numbers. It looks at blocks: 0·v is 0 for every finite v, and
// NaN for all others. Four sums need not wait for each other.
func All[T device.Float](x []T) bool {
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

// AnyNaN says that some of x are NaN. It may also say so of infinities of both signs.
func AnyNaN[T vec.Float](x []T) bool {
	s := vec.Best[T]().Sum(x)
	return s != s
}
