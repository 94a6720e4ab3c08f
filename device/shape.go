package device

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Shape is the extent of a tensor along each axis, outermost first; data is row-major and
// contiguous. An empty (or nil) shape is a scalar. Extents may be 0. Shapes are values: no function
// keeps or changes one it was given.
type Shape []int

// MaxRank bounds the number of axes, here and on the wire.
const MaxRank = 16

// Elems is the number of elements: 1 for a scalar.
func (s Shape) Elems() int {
	n := 1
	for _, d := range s {
		n *= d
	}
	return n
}

// Check refuses negative extents, too many axes, and sizes beyond the address space.
func (s Shape) Check() error {
	if len(s) > MaxRank {
		return fmt.Errorf("%w: %d axes; at most %d are supported", ErrBadShape, len(s), MaxRank)
	}
	n := 1
	for _, d := range s {
		if d < 0 {
			return fmt.Errorf("%w: %v has a negative extent", ErrBadShape, s)
		}
		if d > 0 && n > math.MaxInt/8/d {
			return fmt.Errorf("%w: %v has too many elements", ErrBadShape, s)
		}
		n *= max(d, 1) // a 0 elsewhere must not hide an overflow
	}
	return nil
}

// Equal compares extents.
func (s Shape) Equal(t Shape) bool { return slices.Equal(s, t) }

// Clone is an independent copy; never nil.
func (s Shape) Clone() Shape { return append(make(Shape, 0, len(s)), s...) }

// String prints "(2, 3)"; a scalar prints "()".
func (s Shape) String() string {
	var b strings.Builder
	b.WriteByte('(')
	for i, d := range s {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, d)
	}
	b.WriteByte(')')
	return b.String()
}
