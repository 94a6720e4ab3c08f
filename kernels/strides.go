package kernels

import "github.com/weft-project/weft/device"

// rowMajor gives the strides of a contiguous tensor, in elements.
func rowMajor(s device.Shape) []int {
	st, n := make([]int, len(s)), 1
	for k := len(s) - 1; k >= 0; k-- {
		st[k] = n
		n *= s[k]
	}
	return st
}

// broadcastStrides are the strides with which a tensor of shape from is read as shape to; 0 where it repeats.
func broadcastStrides(from, to device.Shape) []int { return stretched(rowMajor(from), from, to) }

// stretched is broadcastStrides for a tensor with strides of its own.
func stretched(own []int, from, to device.Shape) []int {
	st := make([]int, len(to))
	for k, n := range from {
		if n != 1 {
			st[len(to)-len(from)+k] = own[k]
		}
	}
	return st
}

// collapse drops axes of extent 1 and joins neighbours that all operands step through as if they were one. What is
// left describes the same walk; the last axis is as long as it can be.
func collapse(s device.Shape, strides ...[]int) ([]int, [][]int) {
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

// each calls fn for every index below dims, the last axis fastest, with the offset of that index by each of the
// strides. The slice is reused between calls. A scalar has one index.
func each(dims []int, strides [][]int, fn func(off []int)) {
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

// walk is a collapsed walk split into runs: the inner axis, which kernels treat as a loop, and the axes around it.
type walk struct {
	n     int   // length of a run
	inner []int // each operand's stride within a run
	dims  []int // the axes around the run
	outer [][]int
}

// newWalk splits the walk over s. A scalar is one run of length 1 with strides 1.
func newWalk(s device.Shape, strides ...[]int) walk {
	dims, st := collapse(s, strides...)
	w := walk{n: 1, inner: make([]int, len(strides)), outer: make([][]int, len(strides))}
	last := len(dims) - 1
	for o := range strides {
		w.inner[o] = 1
		if last >= 0 {
			w.inner[o], w.outer[o] = st[o][last], st[o][:last]
		}
	}
	if last >= 0 {
		w.n, w.dims = dims[last], dims[:last]
	}
	return w
}

// runs calls fn with the operands' offsets at the start of every run that is not empty.
func (w *walk) runs(fn func(off []int)) {
	if w.n > 0 {
		each(w.dims, w.outer, fn)
	}
}
