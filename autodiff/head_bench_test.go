package autodiff

import (
	"fmt"
	"testing"

	"github.com/weft-project/weft/autodiff/internal/expr"
	"github.com/weft-project/weft/device"
)

// BenchmarkHead is the end of a model that predicts words, forward and backward: with whole logits,
// and in pieces of so many rows.
func BenchmarkHead(b *testing.B) {
	const rows, width, classes = 2048, 64, 8192
	r := rng(1)
	next := make([]int64, rows)
	for k := range next {
		next[k] = r.Int64N(classes)
	}
	x, w := drawnTensor(r, device.Float32, rows, width).RequireGrad(), drawnTensor(r, device.Float32, classes, width).RequireGrad()
	y := New(next)
	for _, piece := range []int{0, 512, 1024} {
		f := Define("head", func(g *Graph, x, w, next node) node { return g.CrossEntropy(g.MatMulT(x, w, false, true), next) })
		if f.pieces = (expr.Pieces{Bytes: 1, Rows: piece}); piece == 0 {
			f.pieces.Bytes = 1 << 40
		}
		b.Run(fmt.Sprint(piece), func(b *testing.B) {
			for b.Loop() {
				if _, err := Backward(f.Call(x, w, y)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
