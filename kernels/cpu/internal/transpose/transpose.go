package transpose

import (
	"unsafe"

	"github.com/weft-project/weft/device"
)

// Tile is how many rows of a transposed pair of axes are best written at once: where rows are a
// power of two apart, the first cache holds but 12 lines of them.
const Tile = 8

// Matrix copies n columns of rows elements, which begin step apart in x, to rows of n elements,
// which begin row apart in o: o[r·row+k] = x[k·step+r]. The two must not overlap. It panics where a
// slice is too short.
func Matrix[E device.Number](rows, n int, o []E, row int, x []E, step int) {
	if rows <= 0 || n <= 0 {
		return
	}
	_, _ = o[(rows-1)*row+n-1], x[(n-1)*step+rows-1]
	size := int(unsafe.Sizeof(x[0]))
	r, k := squares(size, rows, n, unsafe.Pointer(&o[0]), size*row, unsafe.Pointer(&x[0]), size*step)
	if k < n {
		Plain(r, n-k, o[k:], row, x[k*step:], step)
	}
	if r < rows {
		Plain(rows-r, n, o[r*row:], row, x[r:], step)
	}
}

// Plain is Matrix in plain Go.
func Plain[E device.Number](rows, n int, o []E, row int, x []E, step int) {
	k := 0
	for ; k+4 <= n; k += 4 {
		a, b, c, d := x[k*step:][:rows], x[(k+1)*step:][:rows], x[(k+2)*step:][:rows], x[(k+3)*step:][:rows]
		at := k
		for r := range a {
			to := (*[4]E)(o[at:])
			to[0], to[1], to[2], to[3] = a[r], b[r], c[r], d[r]
			at += row
		}
	}
	for ; k < n; k++ {
		for r, v := range x[k*step:][:rows] {
			o[r*row+k] = v
		}
	}
}
