package autodiff

import (
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

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
	r := &rows{ids: saved[0].Retain(), n: g.ids.Shape.Elems()}
	if g.ids.Dtype != device.Int64 {
		_ = r.ids.Release() // ours
		if r.ids, err = runOne(gy.dev, kernels.Cast{To: device.Int64}, []kernels.Type{g.ids}, saved[0]); err != nil {
			return nil, err
		}
	}
	if r.values, err = gy.acquire(); err != nil {
		_ = r.ids.Release() // ours
		return nil, err
	}
	return []*Tensor{sparse(g.table, r), nil}, nil
}
