package outer

import (
	"cmp"
	"hash/crc32"
	"math"
	"slices"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device"
)

// fragment is a part of the parameters that is exchanged at once, as one array.
type fragment struct {
	params           []int // in ascending order
	lens             []int // their elements
	anchor, momentum []float32
	wire             *collective.Narrow // nil: it travels as float32
}

// divide spreads parameters of some lengths over fragments of about the same size: each, the
// largest first, comes to the one that has the least.
func divide(lens []int, n int) [][]int {
	order := make([]int, len(lens))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(lens[b], lens[a]) })
	parts, sizes := make([][]int, n), make([]int, n)
	for _, i := range order {
		least := 0
		for f := range parts {
			if c := cmp.Compare(sizes[f], sizes[least]); c < 0 || c == 0 && len(parts[f]) < len(parts[least]) {
				least = f
			}
		}
		parts[least] = append(parts[least], i)
		sizes[least] += lens[i]
	}
	for _, part := range parts {
		slices.Sort(part)
	}
	return parts
}

// castagnoli is what processors have an instruction for.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sum tells whether members have the same values.
func sum(x []float32) uint32 { return crc32.Checksum(device.Bytes(x), castagnoli) }

// state tells whether members have the same values and the same momentum.
func (f *fragment) state() uint64 { return uint64(sum(f.anchor))<<32 | uint64(sum(f.momentum)) }

// less is a − b.
func less(a, b []float32) []float32 {
	d := make([]float32, len(a))
	for i := range d {
		d[i] = a[i] - b[i]
	}
	return d
}

// descend is SGD with Nesterov momentum, as torch has it, by a mean outer gradient. Each product is
// rounded, so that processors which could fuse it with a sum get the same bits as those that
// cannot.
func (f *fragment) descend(mean []float32, lr, mu float32) (anchor, momentum []float32) {
	anchor, momentum = make([]float32, len(mean)), make([]float32, len(mean))
	for i, g := range mean {
		m := float32(mu*f.momentum[i]) + g
		momentum[i] = m
		anchor[i] = f.anchor[i] - float32(lr*(g+float32(mu*m)))
	}
	return anchor, momentum
}

// mixed is share·own + (1−share)·anchor.
func mixed(own, anchor []float32, share float32) []float32 {
	if share == 0 {
		return anchor
	}
	x := make([]float32, len(own))
	for i := range x {
		x[i] = float32(share*own[i]) + float32((1-share)*anchor[i])
	}
	return x
}

// moved is what a worker has made since it had an anchor, made from another one.
func moved(own, from, to []float32) []float32 {
	x := make([]float32, len(own))
	for i := range x {
		x[i] = to[i] + (own[i] - from[i])
	}
	return x
}

// notFinite is the place of the first element that is not finite; −1: all are.
func notFinite(x []float32) int {
	return slices.IndexFunc(x, func(v float32) bool { return math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) })
}

// param is which parameter has an element of the fragment's array.
func (f *fragment) param(at int) int {
	for k, n := range f.lens {
		if at < n {
			return f.params[k]
		}
		at -= n
	}
	return f.params[len(f.params)-1]
}
