package shard

import (
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/parallel/internal/host"
)

// flat is a layer's parameters of one dtype, one behind the other, as they travel. Every rank has
// its share of it, as even as can be, however large the parameters are.
type flat struct {
	dtype  device.Dtype
	params []int // which they are
	at     []int // where each begins, in elements
	size   []int // how many elements each has
	n      int   // elements of all
	lo, hi int   // this rank's share of them
}

// add puts a parameter behind the others.
func (f *flat) add(param, elems int) {
	f.params, f.at, f.size = append(f.params, param), append(f.at, f.n), append(f.size, elems)
	f.n += host.Padded(elems*f.dtype.Size()) / f.dtype.Size()
}

// mine is the part of the j-th parameter that this rank has, in elements of the parameter. It may
// be empty.
func (f *flat) mine(j int) (lo, hi int) {
	lo = min(max(f.lo-f.at[j], 0), f.size[j])
	hi = min(max(f.hi-f.at[j], lo), f.size[j])
	return lo, hi
}

// inShare is where in the share that part begins, in bytes, and how long it is.
func (f *flat) inShare(j int) (off, n int) {
	lo, hi := f.mine(j)
	if lo == hi {
		return 0, 0
	}
	return (f.at[j] + lo - f.lo) * f.dtype.Size(), (hi - lo) * f.dtype.Size()
}

// spot is where the j-th parameter lies in all of it, in bytes.
func (f *flat) spot(j int) (off, n int) {
	return f.at[j] * f.dtype.Size(), f.size[j] * f.dtype.Size()
}

// bytes is the size of all of it, and of the share.
func (f *flat) bytes() (all, share int) {
	return f.n * f.dtype.Size(), (f.hi - f.lo) * f.dtype.Size()
}

// param is the dtype and the size of a parameter.
type param struct {
	dtype device.Dtype
	elems int
}

// cut lays out the parameters of a layer, whose numbers begin with first, for a rank of so many:
// one flat for each dtype.
func cut(first int, params []param, size, rank int) (all []*flat) {
	for _, d := range []device.Dtype{device.Float32, device.Float64} {
		f := &flat{dtype: d}
		for i, p := range params {
			if p.dtype == d {
				f.add(first+i, p.elems)
			}
		}
		if len(f.params) > 0 {
			f.lo, f.hi = collective.Share(f.n, size, rank)
			all = append(all, f)
		}
	}
	return all
}
