package parallel

import (
	"cmp"
	"slices"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/parallel/internal/host"
	"github.com/weft-project/weft/parallel/internal/peers"
)

// bucket is gradients that travel together.
type bucket struct {
	dtype device.Dtype
	host.Pack
	header bool // it begins with what ranks tell of the step; of float32
	alone  bool // one gradient, which is not copied

	sparse bool               // alone, as the rows that it has
	narrow *collective.Narrow // it travels in fewer bits
	low    *factors           // alone, as two thin matrices
}

// telling is what a header says, read: sums over all ranks. For each parameter it has how many
// ranks used it, as the how manieth it came on rank 0, or 0, and how many have only some rows of
// it.
type telling struct {
	rows               float64
	failed             bool
	used, came, sparse []float32
}

// headerLen is how many elements a header has, of so many parameters.
func headerLen(params int) int { return peers.HeaderLen + 3*params }

func read(header []float32, params int) (t telling) {
	var lists []float32
	t.rows, t.failed, lists = peers.ReadHeader(header)
	for i, to := range []*[]float32{&t.used, &t.came, &t.sparse} {
		*to = lists[i*params:][:params]
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

// layout puts parameters into buckets, in their order; of some only rows travel. With a header the
// last bucket has it, and the small gradients that travel as they are and come last. Without one
// all travel exactly.
func (r *Replicas) layout(params []int, rowsOnly []bool, header bool) (all []bucket) {
	open := map[device.Dtype]*bucket{}
	for _, i := range params {
		t := r.params[i].Type()
		b := bucket{dtype: t.Dtype, Pack: host.Pack{Params: []int{i}, At: []int{0}, Bytes: t.Bytes()}, alone: true, sparse: rowsOnly[i]}
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
		if to == nil || to.Bytes+t.Bytes() > r.limit {
			if to != nil {
				all = append(all, *to)
			}
			to = &bucket{dtype: t.Dtype}
			if thin {
				to.narrow = r.config.Wire.narrow()
			}
			open[t.Dtype] = to
		}
		to.Add(i, t.Bytes())
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
		last.header = true
		last.Lead(device.Float32.Size() * headerLen(len(r.params)))
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
