package parallel

import (
	"cmp"
	"context"
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
}

// What a header has: sums over all ranks. Behind these it has, for each parameter, how many ranks
// used it, and then as the how manieth it came on rank 0, or 0.
const (
	headerRows   = iota // of the step
	headerFailed        // how many ranks could not do their part
	headerFixed
)

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

// layout puts parameters into buckets, in their order. With a header the last bucket has it, and
// the small gradients of float32 that come last.
func (r *Replicas) layout(params []int, header bool) (all []bucket) {
	narrow, wide := bucket{dtype: device.Float32}, bucket{dtype: device.Float64}
	for _, i := range params {
		t := r.params[i].Type()
		if t.Bytes() >= r.limit {
			all = append(all, bucket{dtype: t.Dtype, params: []int{i}, at: []int{0}, bytes: t.Bytes(), alone: true})
			continue
		}
		open := &narrow
		if t.Dtype == device.Float64 {
			open = &wide
		}
		if open.bytes+t.Bytes() > r.limit && len(open.params) > 0 {
			all = append(all, *open)
			*open = bucket{dtype: t.Dtype}
		}
		open.pack(i, t.Bytes())
	}
	if len(wide.params) > 0 {
		all = append(all, wide)
	}
	if header {
		narrow.lead(device.Float32.Size() * (headerFixed + 2*len(r.params)))
	}
	if header || len(narrow.params) > 0 {
		all = append(all, narrow)
	}
	return all
}

// load is a bucket in one step.
type load struct {
	*bucket
	missing int            // gradients that have not come
	ready   chan struct{}  // closed when nothing more comes
	in, out *device.Buffer // what this rank brings, and the sums
	err     error          // why there are none
}

func newLoad(b *bucket) *load {
	return &load{bucket: b, missing: len(b.params), ready: make(chan struct{})}
}

// prepare has memory for what this rank brings, zero at first.
func (l *load) prepare() (err error) {
	if l.in != nil {
		return nil
	}
	if l.in, err = device.Host().Alloc(l.bytes); err != nil {
		return err
	}
	mem, err := l.in.Host()
	clear(mem)
	return err
}

// memory is where packed gradients go.
func (l *load) memory() ([]byte, error) {
	if err := l.prepare(); err != nil {
		return nil, err
	}
	return l.in.Host()
}

// bring puts in the k-th gradient, whose reference it takes over.
func (l *load) bring(k int, grad *device.Buffer) {
	l.missing--
	if l.alone {
		l.in = grad
		return
	}
	defer grad.Release() //nolint:errcheck // ours
	mem, err := l.memory()
	if err == nil {
		err = grad.Device().Download(mem[l.at[k]:l.at[k]+grad.Len()], grad, 0)
	}
	l.err = cmp.Or(l.err, err)
}

// exchange makes the sums of what all ranks bring. All call it, whatever happened. Where one has
// nothing to bring it fails on all.
func (l *load) exchange(c context.Context, g *collective.Group) {
	l.err = cmp.Or(l.err, l.prepare())
	in := l.in
	if l.err != nil {
		in = nil // which the group refuses, and tells
	}
	if g.Size() == 1 {
		if in != nil {
			l.out = in.Retain()
		}
		return
	}
	out, err := g.AllReduced(c, collective.Sum, l.dtype, in)
	l.out, l.err = out, cmp.Or(l.err, err)
}

// total is the sum of the k-th gradient, of so many bytes.
func (l *load) total(k, bytes int) (*device.Buffer, error) {
	if l.alone {
		return l.out.Retain(), nil
	}
	mem, err := l.out.Host()
	if err != nil {
		return nil, err
	}
	whole := l.out.Retain()
	return device.Foreign(mem[l.at[k]:l.at[k]+bytes], nil, func() { _ = whole.Release() }), nil // ours
}

func (l *load) letGo() {
	dropAll([]*device.Buffer{l.in, l.out})
	l.in, l.out = nil, nil
}

// dropAll gives back a reference to each, but for nil ones.
func dropAll(bufs []*device.Buffer) {
	for _, b := range bufs {
		if b != nil {
			_ = b.Release() // ours
		}
	}
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
