package stride

import "github.com/weft-project/weft/device"

// RowMajor gives the strides of a contiguous tensor, in elements.
func RowMajor(s device.Shape) []int {
	st, n := make([]int, len(s)), 1
	for k := len(s) - 1; k >= 0; k-- {
		st[k] = n
		n *= s[k]
	}
	return st
}

// Broadcast are the strides with which a tensor of shape from is read as shape to; 0 where it
// repeats.
func Broadcast(from, to device.Shape) []int { return Stretch(RowMajor(from), from, to) }

// Stretch is Broadcast for a tensor with strides of its own.
func Stretch(own []int, from, to device.Shape) []int {
	st := make([]int, len(to))
	for k, n := range from {
		if n != 1 {
			st[len(to)-len(from)+k] = own[k]
		}
	}
	return st
}

// Collapse drops axes of extent 1 and joins neighbours that all operands step through as if they
// were one. What is left describes the same walk; the last axis is as long as it can be.
func Collapse(s device.Shape, strides ...[]int) ([]int, [][]int) {
	var dims []int
	out := make([][]int, len(strides))
	for k, n := range s {
		if n == 1 {
			continue
		}
		last := len(dims) - 1
		join := last >= 0
		for o, st := range strides {
			join = join && out[o][last] == st[k]*n
		}
		if join {
			dims[last] *= n
		} else {
			dims = append(dims, n)
			last++
		}
		for o, st := range strides {
			out[o] = append(out[o][:last], st[k])
		}
	}
	return dims, out
}
