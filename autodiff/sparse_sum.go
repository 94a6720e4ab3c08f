package autodiff

import (
	"fmt"
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// AddGradients is a + b for two gradients of one tensor, without a record on the tape: sparse where
// both are, otherwise dense. It belongs to the arena of either, or to nobody.
func AddGradients(a, b *Tensor) *Tensor {
	owner, err := ownerOf([]*Tensor{a, b})
	if err != nil {
		return failed(opError("AddGradients", err))
	}
	sum, err := sumOf(a, b)
	if err != nil {
		return failed(opError("AddGradients", err))
	}
	return sum.owned("AddGradients", owner)
}

// sumOf is a + b as a transient; both stay the caller's.
func sumOf(a, b *Tensor) (*Tensor, error) {
	if err := a.Err(); err != nil {
		return nil, err
	}
	if err := b.Err(); err != nil {
		return nil, err
	}
	if !a.typ.Equal(*b.typ) || a.dev != b.dev {
		return nil, fmt.Errorf("%w: %v on %v and %v on %v are not of one tensor", ErrGradient, *a.typ, a.dev.ID(), *b.typ, b.dev.ID())
	}
	if a.sparse && !b.sparse {
		a, b = b, a
	}
	if !b.sparse {
		return sumDense(a, b)
	}
	s, err := b.acquireRows()
	if err != nil {
		return nil, err
	}
	defer s.release()
	if a.sparse {
		r, err := a.acquireRows()
		if err != nil {
			return nil, err
		}
		defer r.release()
		sum, err := r.join(s, *a.typ)
		if err != nil {
			return nil, err
		}
		return sparse(*a.typ, sum), nil
	}
	x, err := a.acquire()
	if err != nil {
		return nil, err
	}
	defer x.Release() //nolint:errcheck // ours
	add, types := addingRows(a, s)
	out, err := runOne(a.dev, add, types, x, s.values, s.ids)
	if err != nil {
		return nil, err
	}
	return manual(*a.typ, out), nil
}

// addingRows is how rows are added to a whole: (whole, values, ids).
func addingRows(whole *Tensor, r *rows) (kernels.Instr, []kernels.Type) {
	return kernels.OnRows{Of: kernels.Binary{Fn: kernels.Add}}, []kernels.Type{*whole.typ, valuesType(*whole.typ, r.n), idsType(r.n)}
}

func sumDense(a, b *Tensor) (*Tensor, error) {
	add, err := addition(a)
	if err != nil {
		return nil, err
	}
	x, err := a.acquire()
	if err != nil {
		return nil, err
	}
	defer x.Release() //nolint:errcheck // ours
	y, err := b.acquire()
	if err != nil {
		return nil, err
	}
	defer y.Release() //nolint:errcheck // ours
	sum, err := a.dev.Alloc(a.typ.Bytes())
	if err != nil {
		return nil, err
	}
	if err := add.sole.Run([]*device.Buffer{sum}, []*device.Buffer{x, y}); err != nil {
		_ = sum.Release() // ours alone
		return nil, err
	}
	return manual(*a.typ, sum), nil
}

// addition is what adds two values like t.
func addition(t *Tensor) (*compiled, error) {
	if t.requiresGrad {
		t = &Tensor{typ: t.typ, dev: t.dev}
	}
	return binaries[kernels.Add].programs(t.dev, []*Tensor{t, t})
}

// addInPlace adds g to a transient that nobody else sees, where that can be done without another
// buffer.
func addInPlace(sum, g *Tensor) (done bool, err error) {
	if sum.sparse || sum.err != nil || sum.dev != g.dev || !sum.typ.Equal(*g.typ) || sum.buf == nil || !sum.buf.Exclusive() {
		return false, nil
	}
	if g.sparse {
		r, err := g.acquireRows()
		if err != nil {
			return false, err
		}
		defer r.release()
		add, types := addingRows(sum, r)
		return true, runInto(sum.buf, add, types, sum.buf, r.values, r.ids)
	}
	add, err := addition(sum)
	if err != nil {
		return false, err
	}
	b, err := g.acquire()
	if err != nil {
		return false, err
	}
	defer b.Release() //nolint:errcheck // ours
	if add.host != nil && sum.dev == onHost {
		return true, onMemory(add.host, []*device.Buffer{sum.buf, b}, []*device.Buffer{sum.buf})
	}
	return true, add.sole.Run([]*device.Buffer{sum.buf}, []*device.Buffer{sum.buf, b})
}

// join is all rows of both, coalesced where they are more than the tensor has: sums stay bounded
// however many are added.
func (r *rows) join(s *rows, dense kernels.Type) (*rows, error) {
	n := r.n + s.n
	ids, err := runOne(r.ids.Device(), kernels.Concat{}, []kernels.Type{idsType(r.n), idsType(s.n)}, r.ids, s.ids)
	if err != nil {
		return nil, err
	}
	values, err := runOne(r.ids.Device(), kernels.Concat{}, []kernels.Type{valuesType(dense, r.n), valuesType(dense, s.n)}, r.values, s.values)
	if err != nil {
		_ = ids.Release() // ours alone
		return nil, err
	}
	sum := &rows{ids: ids, values: values, n: n}
	if n <= dense.Shape[0] {
		return sum, nil
	}
	defer sum.release()
	return sum.coalesced(dense)
}

// Coalesce is the same gradient with every index at most once, in ascending order; t itself where
// that is so already, or it is not sparse. It belongs to t's arena, or to nobody.
func (t *Tensor) Coalesce() *Tensor {
	if !t.IsSparse() {
		return t
	}
	r, err := t.acquireRows()
	if err != nil {
		return failed(err)
	}
	defer r.release()
	if r.distinct {
		return t
	}
	c, err := r.coalesced(*t.typ)
	if err != nil {
		return failed(opError("Coalesce", err))
	}
	return sparse(*t.typ, c).owned("Coalesce", t.owner)
}

// coalesced sums the values of equal ids.
func (r *rows) coalesced(dense kernels.Type) (*rows, error) {
	at, err := r.indices()
	if err != nil {
		return nil, err
	}
	distinct := slices.Clone(at)
	slices.Sort(distinct)
	distinct = slices.Compact(distinct)
	for k, id := range at {
		n, _ := slices.BinarySearch(distinct, id)
		at[k] = int64(n)
	}
	dev := r.ids.Device()
	to, err := upload(dev, at)
	if err != nil {
		return nil, err
	}
	defer to.Release() //nolint:errcheck // ours
	values, err := runOne(dev, kernels.ScatterAdd{Rows: len(distinct)}, []kernels.Type{idsType(r.n), valuesType(dense, r.n)}, to, r.values)
	if err != nil {
		return nil, err
	}
	ids, err := upload(dev, distinct)
	if err != nil {
		_ = values.Release() // ours alone
		return nil, err
	}
	return &rows{ids: ids, values: values, n: len(distinct), distinct: true}, nil
}

func upload(dev device.Device, v []int64) (*device.Buffer, error) {
	b, err := dev.Alloc(8 * len(v))
	if err != nil {
		return nil, err
	}
	if err := dev.Upload(b, 0, device.Bytes(v)); err != nil {
		_ = b.Release() // ours alone
		return nil, err
	}
	return b, nil
}
