package resilient

import (
	"context"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/parallel/internal/losses"
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
	value, err := backward(c, w.loss, mine, weight, a.addGradient)
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

// backward gives the loss of the rows, and the gradient of each leaf to take, which takes it over.
func backward(c context.Context, fn Loss, rows []int, weight float64, take func(leaf, grad *autodiff.Tensor) error) (float64, error) {
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
	return value, losses.Backward(loss, weight, take)
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
