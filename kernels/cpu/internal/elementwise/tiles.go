package elementwise

import (
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/vec"
	"github.com/weft-project/weft/kernels/cpu/internal/transpose"
	"github.com/weft-project/weft/kernels/internal/stride"
)

// tileBytes is the size of a row of scratch: several of them fit the first cache together.
const tileBytes = 8 << 10

// tiling cuts the elements of a shape into tiles, in order: some indices of one axis, with all of
// the axes after it.
type tiling struct {
	dims  []int // the axes, collapsed
	axis  int   // the axis that is cut
	inner int   // elements per index of it
	step  int   // indices of it in a tile
	units int   // indices of it in all, over all axes before it
}

// tileLen is how many elements a tile of operands with these strides should have. Where one is read
// across its lines, a tile takes all that is in a line.
func tileLen(size int, dims []int, strides [][]int) int {
	n, last := tileBytes/size, len(dims)-1
	for _, st := range strides {
		if last > 0 && st[last] > 1 && st[last-1] == 1 {
			return max(n, min(16*n, 64/size*dims[last]))
		}
	}
	return n
}

// newTiling makes tiles of at most n elements, each beginning at a multiple of inner, of which row
// is a multiple.
func newTiling(dims []int, n, row int) tiling {
	t := tiling{dims: dims, axis: len(dims) - 1, inner: 1, units: 1}
	for ; t.axis > 0; t.axis-- {
		more := t.inner * dims[t.axis]
		if more > n/2 || more == 0 || row%more != 0 {
			break
		}
		t.inner = more
	}
	for _, d := range dims[:t.axis+1] {
		t.units *= d
	}
	extent := max(dims[t.axis], 1)
	pieces := (extent + n/t.inner - 1) / (n / t.inner)
	t.step = (extent + pieces - 1) / pieces
	if t.inner == 1 && t.step < extent {
		t.step = min((t.step+15)&^15, n)
	}
	return t
}

// tileIndex is an index over the axes up to the one that is cut.
type tileIndex [device.MaxRank]int

// at sets the index to that of unit u.
func (t *tiling) at(u int, idx *tileIndex) {
	for k := t.axis; k > 0; k-- {
		q := u / t.dims[k]
		idx[k] = u - q*t.dims[k]
		u = q
	}
	idx[0] = u
}

// offset is where an operand with these strides has an index.
func (t *tiling) offset(idx *tileIndex, strides []int) int {
	off := 0
	for k, st := range strides[:t.axis+1] {
		off += idx[k] * st
	}
	return off
}

// inTile is how an operand steps through a tile of m units: m·mul indices that lie step apart, each
// of them all of dims.
type inTile struct {
	mul, step     int
	dims, strides []int
}

func (t *tiling) within(strides []int) inTile {
	dims, st := stride.Collapse(t.dims[t.axis+1:], strides[t.axis+1:])
	in := inTile{1, strides[t.axis], dims, st[0]}
	if len(dims) > 0 && in.step == dims[0]*in.strides[0] {
		in = inTile{dims[0], in.strides[0], dims[1:], in.strides[1:]}
	}
	return in
}

// contiguous says that a tile is a row of the operand itself.
func (in *inTile) contiguous() bool { return len(in.dims) == 0 && in.step == 1 }

// gather lays out n indices step apart, and all of dims for each, one after the other.
func gather[T vec.Float](o, x []T, n, step int, dims, strides []int) {
	if len(dims) == 0 {
		gatherRow(o[:n], x, step)
		return
	}
	size := len(o) / n
	if step == 1 && len(dims) == 1 && strides[0] > 1 {
		for r := 0; r < n; r += transpose.Tile {
			transpose.Matrix(min(transpose.Tile, n-r), size, o[r*size:], size, x[r:], strides[0])
		}
		return
	}
	for k := range n {
		if k > 0 && step == 0 {
			repeat(o[:n*size], size)
			return
		}
		gather(o[k*size:(k+1)*size], x[k*step:], dims[0], strides[0], dims[1:], strides[1:])
	}
}

func gatherRow[T vec.Float](o, x []T, step int) {
	switch step {
	case 0:
		some := min(len(o), 16)
		for k := range o[:some] {
			o[k] = x[0]
		}
		repeat(o, some)
	case 1:
		copy(o, x)
	default:
		at := 0
		for k := range o {
			o[k] = x[at]
			at += step
		}
	}
}

// repeat fills o with its first n elements.
func repeat[T vec.Float](o []T, n int) {
	for ; n < len(o); n *= 2 {
		copy(o[n:], o[:n])
	}
}
