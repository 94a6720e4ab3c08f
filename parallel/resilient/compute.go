package resilient

import (
	"context"
	"fmt"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/parallel/resilient/internal/ledger"
)

// compute adds the gradients of some rows to this member's contributions. full is told of each
// bucket to which nothing more comes.
func (t *Team) compute(c context.Context, w work, spans []ledger.Span, full func(b int)) (*adding, error) {
	n := ledger.Len(spans)
	if n == 0 || w.loss == nil {
		return nil, nil
	}
	if t.heads.fixed[headRows] > 0 {
		t.change.Again += n
	}
	all := w.rows.Of(w.step, 0, 1)
	mine := make([]int, 0, n)
	for _, s := range spans {
		mine = append(mine, all[s.Lo:s.Hi]...)
	}
	a := t.adding(full)
	weight := float64(n) / float64(w.rows.Batch)
	value, err := backward(c, w.loss, mine, weight, t.params, func(i int, grad *autodiff.Tensor) error {
		if err := a.addGradient(i, grad); err != nil {
			return fmt.Errorf("the gradient of %s: %w", t.names[i], err)
		}
		return nil
	})
	if err != nil {
		return a, err
	}
	for i := range t.heads.used {
		t.heads.used[i] = max(t.heads.used[i], a.used[i])
	}
	a.rest()
	t.heads.fixed[headRows] += float64(n)
	t.heads.fixed[headDigest] += rowsDigest(mine)
	t.heads.fixed[headLoss] += weight * value
	t.m.Computed(spans)
	return a, nil
}

// backward gives the gradient of each parameter to got, and the loss of the rows.
func backward(c context.Context, fn Loss, rows []int, weight float64, params []*autodiff.Tensor,
	got func(i int, grad *autodiff.Tensor) error,
) (float64, error) {
	loss, err := fn(c, rows)
	if err != nil {
		return 0, err
	}
	if owner := loss.Owner(); owner != nil {
		defer owner.Free()
	}
	value, err := loss.Item()
	if err != nil {
		return 0, err
	}
	by := autodiff.FullLike(loss, weight)
	for i, p := range params {
		remove, err := p.OnAccumulated(func(_, grad *autodiff.Tensor) error { return got(i, grad) })
		if err != nil {
			return 0, err
		}
		defer remove()
	}
	grads, err := autodiff.BackwardWith(autodiff.Options{Grads: []*autodiff.Tensor{by}}, loss)
	if err == nil {
		grads.Free() // whoever wants one has copied it
	}
	return value, err
}

// rowsDigest is a sum over rows that tells batches apart. It is exact in float64.
func rowsDigest(rows []int) (sum float64) {
	for _, row := range rows {
		x := (uint64(row) + 1) * 0x9e3779b97f4a7c15
		x = (x ^ x>>29) * 0xbf58476d1ce4e5b9
		sum += float64(x >> 36)
	}
	return sum
}
