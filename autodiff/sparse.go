package autodiff

import (
	"fmt"
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// A sparse tensor is a gradient of which only some rows are kept: the value of its type, [v, d…],
// is zero but for row ids[k], to which values[k] was added, for each k. It is a Tensor like any
// other: what needs the value itself gets a dense copy, made anew each time.

// rows are the parts of a sparse tensor's value, with one reference each.
type rows struct {
	ids, values *device.Buffer // int64 [n]; [n, d…]
	n           int
	distinct    bool // no id occurs twice, and they ascend
}

func (r *rows) retain() *rows {
	r.ids.Retain()
	r.values.Retain()
	return r
}

func (r *rows) release() { releaseAll([]*device.Buffer{r.ids, r.values}) }

func (r *rows) bytes() int { return r.ids.Len() + r.values.Len() }

// valuesType is the type of the values of a sparse tensor of n rows.
func valuesType(dense kernels.Type, n int) kernels.Type {
	return kernels.Type{Dtype: dense.Dtype, Shape: slices.Concat(device.Shape{n}, dense.Shape[1:])}
}

func idsType(n int) kernels.Type { return kernels.Type{Dtype: device.Int64, Shape: device.Shape{n}} }

// sparse is a transient of rows, which it takes over.
func sparse(typ kernels.Type, r *rows) *Tensor {
	return &Tensor{typ: &typ, dev: r.values.Device(), rows: r, sparse: true}
}

// Sparse is the tensor of extent rows that is zero but for the rows ids (int64 [n]), to which
// values [n, d…] are added: a gradient as [EmbeddingSparse] makes them. It shares the memory of
// both, and belongs to their arena.
func Sparse(extent int, ids, values *Tensor) *Tensor {
	owner, err := ownerOf([]*Tensor{ids, values})
	var i, v *device.Buffer
	if err == nil {
		i, err = ids.detached()
	}
	if err == nil {
		if v, err = values.detached(); err != nil {
			_ = i.Release() // ours
		}
	}
	var t *Tensor
	if err == nil {
		t, err = TransientSparse(extent, *ids.typ, i, *values.typ, v)
	}
	if err != nil {
		return failed(opError("Sparse", err))
	}
	return t.owned("Sparse", owner)
}

// TransientSparse is [Transient] for a sparse gradient, of which only the parts are trusted to be
// what their types say: it checks that the ids lie in [0, extent). It takes over both references.
func TransientSparse(extent int, idsAre kernels.Type, ids *device.Buffer, valuesAre kernels.Type, values *device.Buffer) (*Tensor, error) {
	r := &rows{ids: ids, values: values}
	fail := func(err error) (*Tensor, error) {
		r.release()
		return nil, err
	}
	if len(idsAre.Shape) != 1 || idsAre.Dtype != device.Int64 || !valuesAre.Dtype.IsFloat() || len(valuesAre.Shape) == 0 || valuesAre.Shape[0] != idsAre.Shape[0] {
		return fail(fmt.Errorf("%w: indices %v and values %v are no rows; expected int64(n) and floats (n, …)", ErrGradient, idsAre, valuesAre))
	}
	typ := kernels.Type{Dtype: valuesAre.Dtype, Shape: slices.Concat(device.Shape{extent}, valuesAre.Shape[1:])}
	switch err := typ.Shape.Check(); {
	case err != nil:
		return fail(err)
	case ids.Len() != idsAre.Bytes() || values.Len() != valuesAre.Bytes() || ids.Device() != values.Device():
		return fail(fmt.Errorf("%w: the buffers do not hold %v and %v, on one device", ErrGradient, idsAre, valuesAre))
	}
	r.n = idsAre.Shape[0]
	at, err := r.indices()
	if err != nil {
		return fail(err)
	}
	r.distinct = true
	for k, id := range at {
		if id < 0 || id >= int64(extent) {
			return fail(fmt.Errorf("%w: %w", ErrGradient, &kernels.IndexError{Instr: "Sparse", ID: id, At: k, N: extent}))
		}
		r.distinct = r.distinct && (k == 0 || at[k-1] < id)
	}
	return sparse(typ, r), nil
}

// indices copies the ids to the host.
func (r *rows) indices() ([]int64, error) {
	at := make([]int64, r.n)
	return at, r.ids.Device().Download(device.Bytes(at), r.ids, 0)
}

// IsSparse says whether the tensor is a gradient that is kept as rows; see [Tensor.Rows].
func (t *Tensor) IsSparse() bool { return t != nil && t.sparse }

// Rows are the parts of a sparse gradient, int64 [n] and [n, d…]: the gradient is the sum of the
// values of each index, and zero elsewhere. An index may occur more than once: see
// [Tensor.Coalesce]. ok is false for any other tensor. The parts share the tensor's memory and
// belong to its arena.
func (t *Tensor) Rows() (indices, values *Tensor, ok bool) {
	if !t.IsSparse() {
		return nil, nil, false
	}
	r, err := t.acquireRows()
	if err != nil {
		return failed(err), failed(err), true
	}
	return t.part(idsType(r.n), r.ids), t.part(valuesType(*t.typ, r.n), r.values), true
}

// part is a view of a part of the value, with the tensor's owner. It takes over the reference.
func (t *Tensor) part(typ kernels.Type, buf *device.Buffer) *Tensor {
	p := manual(typ, buf)
	if t.owner == nil {
		return p // the memory's owner is the sparse tensor's
	}
	p.owner = t.owner
	if err := t.owner.adopt(p, 0); err != nil {
		p.free()
		return failed(opError("Rows", err))
	}
	return p
}

// densified is the value itself in a buffer of its own, of which the caller owns the reference.
func (t *Tensor) densified() (*device.Buffer, error) {
	r, err := t.acquireRows()
	if err != nil {
		return nil, err
	}
	defer r.release()
	return runOne(t.dev, kernels.ScatterAdd{Rows: t.typ.Shape[0]}, []kernels.Type{idsType(r.n), valuesType(*t.typ, r.n)}, r.ids, r.values)
}

// owned gives a transient to an owner, or to nobody.
func (t *Tensor) owned(op string, owner *Arena) *Tensor {
	if err := t.settle(owner); err != nil {
		return failed(opError(op, err))
	}
	return t
}

// settle gives a transient to an owner, or to nobody. Where it fails the value is freed.
func (t *Tensor) settle(owner *Arena) error {
	if owner != nil {
		err := owner.Adopt(t)
		if err != nil {
			t.free()
		}
		return err
	}
	if t.sparse {
		t.rows.ids.Disown()
		t.rows.values.Disown()
	} else {
		t.buf.Disown()
	}
	return nil
}

// held is how many bytes the value takes.
func (t *Tensor) held() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rows != nil {
		return t.rows.bytes()
	}
	return t.typ.Bytes()
}

// acquireRows gives references to the parts, which the caller must release.
func (t *Tensor) acquireRows() (*rows, error) {
	if t.err != nil {
		return nil, t.err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rows == nil {
		return nil, t.errFreed()
	}
	return t.rows.retain(), nil
}

// share is a transient with the same value; nothing is copied, unless it is small.
func (t *Tensor) share() (*Tensor, error) {
	if t.IsSparse() {
		r, err := t.acquireRows()
		if err != nil {
			return nil, err
		}
		return sparse(*t.typ, r), nil
	}
	b, err := t.detached()
	if err != nil {
		return nil, err
	}
	return &Tensor{typ: t.typ, dev: t.dev, buf: b}, nil
}
