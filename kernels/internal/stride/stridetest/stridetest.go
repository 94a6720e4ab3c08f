package stridetest

import "github.com/weft-project/weft/device"

// Each calls fn for every index below dims, the last axis fastest, with the offset of that index by
// each of the strides. The slice is reused between calls. A scalar has one index.
func Each(dims []int, strides [][]int, fn func(off []int)) {
	var idx [device.MaxRank]int
	for _, n := range dims {
		if n == 0 {
			return
		}
	}
	off := make([]int, len(strides))
	for {
		fn(off)
		k := len(dims) - 1
		for ; k >= 0; k-- {
			idx[k]++
			for o := range off {
				off[o] += strides[o][k]
			}
			if idx[k] < dims[k] {
				break
			}
			idx[k] = 0
			for o := range off {
				off[o] -= strides[o][k] * dims[k]
			}
		}
		if k < 0 {
			return
		}
	}
}
