package cpu

import (
	"math"

	"github.com/weft-project/weft/kernels"
)

// masking is where a mask has the numbers of a score; strides are 0 where it has one for all.
type masking struct{ offset, batch, head, row, col int }

func maskedBy(v *kernels.View) *masking {
	by := [4]int{}
	for k, n := range v.Shape {
		if n != 1 {
			by[k] = v.Strides[k]
		}
	}
	return &masking{v.Offset, by[0], by[1], by[2], by[3]}
}

// masks adds the mask to the scores of a row of queries, which are those of the first keys.
func (a *attention[T]) masks(r *attending[T], scores []T, b, head, row int) {
	m := a.mask
	if m == nil || len(scores) == 0 {
		return
	}
	x := r.mask[m.offset+b*m.batch+head*m.head+row*m.row:]
	switch m.col {
	case 0:
		a.v.Shift(scores, scores, x[0])
	case 1:
		a.v.Add(scores, scores, x[:len(scores)])
	default:
		for j := range scores {
			scores[j] += x[j*m.col]
		}
	}
}

// hidden says whether a row whose largest score, or logarithm of a sum, this is sees nothing for
// its mask.
func (a *attention[T]) hidden(most T) bool { return a.mask != nil && math.IsInf(float64(most), -1) }

// dropping is which weights are dropped.
type dropping struct {
	threshold uint64 // a weight is kept where its word is below
	blocks    int    // of words, for a row
}

// drops drops some of the weights of a row of queries, or of their gradients, which are those of
// the first keys, and scales the others.
func (a *attention[T]) drops(r *attending[T], weights []T, b, head, row int) {
	d := a.drop
	if d == nil {
		return
	}
	first := uint64(((b*a.heads+head)*a.t + row) * d.blocks)
	for at := 0; at < len(weights); at += 4 {
		w := r.key.block(first + uint64(at/4))
		for k, v := range weights[at:min(at+4, len(weights))] {
			either := [2]T{0, v * a.kept} // no branch, which nothing could predict
			weights[at+k] = either[below(w[k], d.threshold)&1]
		}
	}
}
