package kernels

import (
	"math"

	"github.com/weft-project/weft/kernels/vec"
)

// compareLoop is binaryLoop for powers, the larger and the smaller of two, and comparisons.
func compareLoop[T vec.Float](fn BinaryFn) func(o, a, b []T) {
	switch fn {
	case Maximum:
		return func(o, a, b []T) {
			for k := range o {
				o[k] = max(a[k], b[k])
			}
		}
	case Minimum:
		return func(o, a, b []T) {
			for k := range o {
				o[k] = min(a[k], b[k])
			}
		}
	case Less:
		return func(o, a, b []T) {
			for k := range o {
				o[k] = truth[T](a[k] < b[k])
			}
		}
	case LessEqual:
		return func(o, a, b []T) {
			for k := range o {
				o[k] = truth[T](a[k] <= b[k])
			}
		}
	case Equal:
		return func(o, a, b []T) {
			for k := range o {
				o[k] = truth[T](a[k] == b[k])
			}
		}
	}
	return func(o, a, b []T) {
		for k := range o {
			o[k] = T(math.Pow(float64(a[k]), float64(b[k])))
		}
	}
}

func truth[T vec.Float](is bool) T {
	if is {
		return 1
	}
	return 0
}
