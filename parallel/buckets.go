package parallel

import (
	"cmp"
	"slices"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device"
)

// bucket is gradients that travel together.
type bucket struct {
	dtype  device.Dtype
	params []int
	at     []int // where each begins, in bytes
	bytes  int
	header bool // it begins with what ranks tell of the step; of float32
	alone  bool // one gradient, which is not copied

	sparse bool               // alone, as the rows that it has
	narrow *collective.Narrow // it travels in fewer bits
	low    *factors           // alone, as two thin matrices
}

// What a header has: sums over all ranks. Behind these it has, for each parameter, how many ranks
// used it, then as the how manieth it came on rank 0, or 0, and how many have only some rows of it.
const (
	headerRows   = iota // of the step
	headerFailed        // how many ranks could not do their part
	headerFixed
)

// telling is what a header says, read.
type telling struct {
	rows, failed       float64
	used, came, sparse []float32
}

func read(header []float32, params int) (t telling) {
	t.rows, t.failed = float64(header[headerRows]), float64(header[headerFailed])
	for i, to := range []*[]float32{&t.used, &t.came, &t.sparse} {
		*to = header[headerFixed+i*params:][:params]
	}
	return t
}

// rowsOnly says which parameters have only some rows, on all ranks that used them.
func (t telling) rowsOnly() []bool {
	all := make([]bool, len(t.used))
	for i := range all {
		all[i] = t.used[i] > 0 && t.sparse[i] == t.used[i]
	}
	return all
}

// padded is where the next gradient may begin.
func padded(bytes int) int { return (bytes + 63) / 64 * 64 }

// pack puts a parameter into the bucket.
func (b *bucket) pack(i, bytes int) {
	b.params, b.at = append(b.params, i), append(b.at, b.bytes)
	b.bytes += padded(bytes)
}

// lead makes room for a header.
func (b *bucket) lead(bytes int) {
	b.header, b.bytes = true, b.bytes+padded(bytes)
	for k := range b.at {
		b.at[k] += padded(bytes)
	}
}

// layout puts parameters into buckets, in their order; of some only rows travel. With a header the
// last bucket has it, and the small gradients that travel as they are and come last. Without one
// all travel exactly.
func (r *Replicas) layout(params []int, rowsOnly []bool, header bool) (all []bucket) {
	open := map[device.Dtype]*bucket{}
	for _, i := range params {
		t := r.params[i].Type()
		b := bucket{dtype: t.Dtype, params: []int{i}, at: []int{0}, bytes: t.Bytes(), alone: true, sparse: rowsOnly[i]}
		if header && !b.sparse {
			b.low = r.lowRank(i)
		}
		thin := header && !b.sparse && b.low == nil && r.config.Wire.fewer(t.Dtype)
		if b.sparse || b.low != nil || t.Bytes() >= r.limit {
			if thin {
				b.narrow = r.narrowed(i)
			}
			all = append(all, b)
			continue
		}
		to := open[t.Dtype]
		if to == nil || to.bytes+t.Bytes() > r.limit {
			if to != nil {
				all = append(all, *to)
			}
			to = &bucket{dtype: t.Dtype}
			if thin {
				to.narrow = r.config.Wire.narrow()
			}
			open[t.Dtype] = to
		}
		to.pack(i, t.Bytes())
	}
	last := bucket{dtype: device.Float32}
	for _, d := range []device.Dtype{device.Float64, device.Float32} {
		if b := open[d]; b != nil {
			if header && d == device.Float32 && b.narrow == nil {
				last = *b
				continue
			}
			all = append(all, *b)
		}
	}
	if header {
		last.lead(device.Float32.Size() * (headerFixed + 3*len(r.params)))
		all = append(all, last)
	}
	return all
}

// order is the parameters that were used, as they came on rank 0. Those that did not come there are
// last, and of them the last one first, as a backward goes.
func order(used, came []float32) (all []int) {
	for i := range slices.Backward(used) {
		if used[i] > 0 {
			all = append(all, i)
		}
	}
	slices.SortStableFunc(all, func(a, b int) int {
		if came[a] == 0 || came[b] == 0 {
			return -cmp.Compare(came[a], came[b])
		}
		return cmp.Compare(came[a], came[b])
	})
	return all
}
