package autodiff

import (
	"fmt"

	"github.com/weft-project/weft/autodiff/internal/rows"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/backend"
)

// A sparse tensor is a gradient of which only some rows are kept: the value of its type, [v, d…],
// is zero but for row ids[k], to which values[k] was added, for each k. It is a Tensor like any
// other: what needs the value itself gets a dense copy, made anew each time.

// sparse is a transient of rows, which it takes over.
func sparse(typ kernels.Type, r *rows.Rows) *Tensor {
	return &Tensor{typ: &typ, dev: r.Values.Device(), rows: r, sparse: true}
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
	r, typ, err := rows.New(extent, idsAre, ids, valuesAre, values)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrGradient, err)
	}
	return sparse(typ, r), nil
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
	return t.part(rows.IDsType(r.N), r.IDs), t.part(rows.ValuesType(*t.typ, r.N), r.Values), true
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
	defer r.Release()
	return r.Dense(*t.typ)
}

// owned gives a transient to an owner, or to nobody.
func (t *Tensor) owned(op string, owner *Arena) *Tensor {
	if err := t.assignOwner(owner); err != nil {
		return failed(opError(op, err))
	}
	return t
}

// assignOwner gives a transient to an owner, or to nobody. Where it fails the value is freed.
func (t *Tensor) assignOwner(owner *Arena) error {
	if owner != nil {
		err := owner.Adopt(t)
		if err != nil {
			t.free()
		}
		return err
	}
	if t.sparse {
		t.rows.IDs.Disown()
		t.rows.Values.Disown()
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
		return t.rows.Bytes()
	}
	return t.typ.Bytes()
}

// acquireRows gives references to the parts, which the caller must release.
func (t *Tensor) acquireRows() (*rows.Rows, error) {
	if t.err != nil {
		return nil, t.err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rows == nil {
		return nil, t.errFreed()
	}
	return t.rows.Retain(), nil
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

// EmbeddingSparse is [Embedding] with a sparse gradient of the table: the rows that ids name, in
// their order, so that neither the backward nor what comes after it costs more than those rows. See
// [Tensor.Rows].
func EmbeddingSparse(table, ids *Tensor) *Tensor {
	y := embed("EmbeddingSparse", table, ids)
	if n := y.edge.Node; y.err == nil && n != nil {
		n.mu.Lock() // nobody else has seen it but its arena, which may be freed at any time
		n.extra().gather = &gather{*table.typ, *ids.typ}
		n.mu.Unlock()
	}
	return y
}

// gather is what the sparse backward of a recorded Gather knows of its operands.
type gather struct{ table, ids kernels.Type }

// backward gives the gradient of the table: the ids that the call saved, and the gradient of the
// result.
func (g *gather) backward(n *Node, gy *Tensor, retain bool) ([]*Tensor, error) {
	saved, err := n.hold(nil, retain)
	defer func() { releaseAll(saved) }()
	if err != nil {
		return nil, err
	}
	if gy == nil {
		return []*Tensor{nil, nil}, nil
	}
	r := &rows.Rows{IDs: saved[0].Retain(), N: g.ids.Shape.Elems()}
	if g.ids.Dtype != device.Int64 {
		_ = r.IDs.Release() // ours
		if r.IDs, err = backend.Run(gy.dev, kernels.Cast{To: device.Int64}, []kernels.Type{g.ids}, saved[0]); err != nil {
			return nil, err
		}
	}
	if r.Values, err = gy.acquire(); err != nil {
		_ = r.IDs.Release() // ours
		return nil, err
	}
	return []*Tensor{sparse(g.table, r), nil}, nil
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
	defer r.Release()
	if r.Distinct {
		return t
	}
	c, err := r.Coalesced(*t.typ)
	if err != nil {
		return failed(opError("Coalesce", err))
	}
	return sparse(*t.typ, c).owned("Coalesce", t.owner)
}
