package tensors

import (
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device"
)

// layout is an array that is cut along one axis.
type layout struct {
	outer int // how often the axis is gone through
	row   int // bytes of one place along the axis
}

func layoutOf(s device.Shape, dim, width int) layout {
	return layout{outer: s[:dim].Elems(), row: s[dim+1:].Elems() * width}
}

// split cuts an array into one of so many rows for each member. Where that needs no copy the parts
// are of mem.
func (l layout) split(mem []byte, rows []int) [][]byte {
	parts := make([][]byte, len(rows))
	for r, n := range rows {
		if l.outer == 1 {
			parts[r], mem = mem[:n*l.row:n*l.row], mem[n*l.row:]
		} else {
			parts[r] = make([]byte, l.outer*n*l.row)
		}
	}
	if l.outer != 1 {
		l.each(mem, parts, rows, func(whole, part []byte) { copy(part, whole) })
	}
	return parts
}

// merge puts the parts together into mem.
func (l layout) merge(mem []byte, parts [][]byte, rows []int) {
	l.each(mem, parts, rows, func(whole, part []byte) { copy(whole, part) })
}

func (l layout) each(mem []byte, parts [][]byte, rows []int, fn func(whole, part []byte)) {
	at := 0
	for i := range l.outer {
		for r, n := range rows {
			n *= l.row
			fn(mem[at:at+n], parts[r][i*n:(i+1)*n])
			at += n
		}
	}
}

// even is how many of n rows each member has: the first ones one more, where they are uneven.
func even(n, size int) []int {
	rows := make([]int, size)
	for r := range rows {
		lo, hi := collective.Share(n, size, r)
		rows[r] = hi - lo
	}
	return rows
}

func total(rows []int) (n int) {
	for _, k := range rows {
		n += k
	}
	return n
}
