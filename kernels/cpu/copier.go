package cpu

import (
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/cpu/internal/transpose"
	"github.com/weft-project/weft/kernels/internal/stride"
)

// copier copies between two strided layouts of one shape. Units of its work may be done in any
// order, by several goroutines at once.
type copier[E int32 | int64] struct {
	to, from    layout
	n           int   // the axis of the innermost loop
	rows        int   // the axis of the loop around it, where one side's elements are neighbours along it and the other's along n; else 1
	dims        []int // the axes around both
	Piece, each int   // how much of n, or of rows where there are many, is one unit, and how many units that makes
	units       int
}

// copying is a copier of whichever elements.
type copying interface {
	// parts is the number of units.
	parts() int
	// copy does units [lo, hi).
	copy(o, x []byte, lo, hi int)
}

// newCopying copies elements of 4 or 8 bytes, whatever they are.
func newCopying(size int, to, from *kernels.View) copying {
	if size == 4 {
		return newCopier[int32](to, from)
	}
	return newCopier[int64](to, from)
}

func (c *copier[E]) parts() int { return c.units }

func (c *copier[E]) copy(o, x []byte, lo, hi int) {
	c.copyUnits(device.As[E](o), device.As[E](x), lo, hi)
}

// layout is how one side of a copier lies.
type layout struct {
	offset    int
	step, row int   // strides along n and rows
	outer     []int // along dims
}

// pieceLen is how many elements of a long run are one unit.
const pieceLen = 16 << 10

// newCopier copies what from reads to where to says; both have one shape.
func newCopier[E int32 | int64](to, from *kernels.View) *copier[E] {
	dims, st := stride.Collapse(to.Shape, to.Strides, from.Strides)
	c := &copier[E]{n: 1, rows: 1, each: 1, dims: dims, to: layout{offset: to.Offset, outer: st[0]}, from: layout{offset: from.Offset, outer: st[1]}}
	if len(dims) > 0 {
		c.n, c.to.step, c.from.step = c.removeAxis(len(c.dims) - 1)
	}
	if k := slices.Index(c.from.outer, 1); k >= 0 && c.to.step == 1 && c.from.step > 1 {
		c.rows, c.to.row, c.from.row = c.removeAxis(k)
	}
	c.Piece = pieceLen
	over := c.n
	if c.rows > 1 {
		c.Piece, over = transpose.Tile, c.rows
	}
	c.each = (over + c.Piece - 1) / c.Piece
	c.units = min(c.each, to.Shape.Elems())
	for _, d := range c.dims {
		c.units *= d
	}
	return c
}

// removeAxis removes an axis from those around, and gives its extent and strides.
func (c *copier[E]) removeAxis(k int) (n, to, from int) {
	n, to, from = c.dims[k], c.to.outer[k], c.from.outer[k]
	c.dims = slices.Delete(slices.Clone(c.dims), k, k+1)
	c.to.outer = slices.Delete(slices.Clone(c.to.outer), k, k+1)
	c.from.outer = slices.Delete(slices.Clone(c.from.outer), k, k+1)
	return n, to, from
}

// copyUnits does units [lo, hi).
func (c *copier[E]) copyUnits(o, x []E, lo, hi int) {
	if lo >= hi {
		return
	}
	var idx [device.MaxRank]int
	u, part := lo/c.each, lo%c.each
	to, from := c.to.offset, c.from.offset
	for k := len(c.dims) - 1; k >= 0; k-- {
		idx[k] = u % c.dims[k]
		u /= c.dims[k]
		to += idx[k] * c.to.outer[k]
		from += idx[k] * c.from.outer[k]
	}
	for ; lo < hi; lo++ {
		c.unit(o[to:], x[from:], part)
		if part++; part < c.each {
			continue
		}
		part = 0
		for k := len(c.dims) - 1; k >= 0; k-- {
			to += c.to.outer[k]
			from += c.from.outer[k]
			if idx[k]++; idx[k] < c.dims[k] {
				break
			}
			idx[k] = 0
			to -= c.to.outer[k] * c.dims[k]
			from -= c.from.outer[k] * c.dims[k]
		}
	}
}

// unit copies one piece of the inner axes.
func (c *copier[E]) unit(o, x []E, part int) {
	at := part * c.Piece
	if c.rows > 1 {
		transpose.Matrix(min(transpose.Tile, c.rows-at), c.n, o[at*c.to.row:], c.to.row, x[at:], c.from.step)
		return
	}
	n := min(c.Piece, c.n-at)
	copyRun(o[at*c.to.step:], x[at*c.from.step:], n, c.to.step, c.from.step)
}

// copyRun copies n elements that are to and from apart.
func copyRun[E int32 | int64](o, x []E, n, to, from int) {
	switch {
	case to == 1 && from == 1:
		copy(o[:n], x)
	case to == 1 && from == 0:
		v := x[0]
		if o = o[:n]; v == 0 {
			clear(o)
			return
		}
		for k := range o {
			o[k] = v
		}
	case to == 1:
		for k := range o[:n] {
			o[k] = x[k*from]
		}
	default:
		for k := range n {
			o[k*to] = x[k*from]
		}
	}
}
