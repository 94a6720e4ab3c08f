//go:build !race

package autodiff

import (
	"fmt"
	"testing"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// sized is a function in which one value begins with the first instruction and ends with the last,
// forward or backward. The sizes make that value as large as a value with a buffer of its own, or a
// little smaller or larger.
type sized struct {
	name  string
	sizes []int
	in    func(n int) [][]int // shapes
	body  func(g *Graph, in []node, n int) node
	ids   int // the last argument holds ids below this, where it is not 0
}

// sizedCases are the functions that once failed as soon as that value had 128 KiB, and others of
// their kind.
func sizedCases() []sized {
	around := []int{255, 256, 257}
	attend := func(g *Graph, in []node, _ int) node { return g.Attention(in[0], in[1], in[2], false) }
	return []sized{
		{name: "a product of a product", sizes: around,
			in:   func(n int) [][]int { return [][]int{{n, 16}, {16, 128}, {128, 4}} },
			body: func(g *Graph, in []node, _ int) node { return g.MatMul(g.MatMul(in[0], in[1]), in[2]) }},
		{name: "a slice of a product", sizes: []int{127, 128, 129},
			in: func(n int) [][]int { return [][]int{{n, 28}, {28, 256}, {n, 64}} },
			body: func(g *Graph, in []node, _ int) node {
				return g.Mul(g.Slice(g.MatMul(in[0], in[1]), 1, 0, 64), in[2])
			}},
		{name: "a sum of a product that broadcasts", sizes: []int{31, 32, 33},
			in: func(n int) [][]int { return [][]int{{4, n, 3}, {3, 256}} },
			body: func(g *Graph, in []node, _ int) node {
				return g.Sum(g.Tanh(g.MatMul(in[0], in[1])), 0, 1)
			}},
		{name: "a product that broadcasts", sizes: []int{31, 32, 33},
			in:   func(n int) [][]int { return [][]int{{4, n, 256}, {256, 3}} },
			body: func(g *Graph, in []node, _ int) node { return g.MatMul(in[0], in[1]) }},
		{name: "LayerNorm", sizes: around,
			in:   func(n int) [][]int { return [][]int{{n, 128}, {128}, {128}} },
			body: func(g *Graph, in []node, _ int) node { return g.LayerNorm(in[0], in[1], in[2], 1e-3) }},
		{name: "attention", sizes: []int{127, 128, 129}, // of 2·128·4 rows: 32 KiB of scores, 128 KiB of queries
			in: func(n int) [][]int { return [][]int{{2, n, 4, 32}, {2, 3, 4, 32}, {2, 3, 4, 32}} }, body: attend},
		{name: "attention with many heads", sizes: []int{1023, 1024, 1025}, // b·heads·t from 32,768 on
			in: func(n int) [][]int { return [][]int{{2, n, 16, 1}, {2, 2, 16, 1}, {2, 2, 16, 1}} }, body: attend},
		{name: "pooling of a convolution", sizes: []int{15, 16, 17},
			in: func(n int) [][]int { return [][]int{{8, 1, n, 32}, {8, 1, 3, 3}, {8}} },
			body: func(g *Graph, in []node, _ int) node {
				return g.MaxPool2d(g.Conv2d(in[0], in[1], in[2], kernels.Square(3, 1, 1)), kernels.Square(2, 2, 0))
			}},
		{name: "a sum of a convolution", sizes: []int{15, 16, 17},
			in: func(n int) [][]int { return [][]int{{8, 1, n, 32}, {8, 1, 3, 3}} },
			body: func(g *Graph, in []node, _ int) node {
				return g.Sum(g.Conv2d(in[0], in[1], nil, kernels.Square(3, 1, 1)), 0, 2, 3)
			}},
		{name: "cross entropy of a linear layer", sizes: around, ids: 128,
			in: func(n int) [][]int { return [][]int{{n, 8}, {8, 128}, {128}, {n}} },
			body: func(g *Graph, in []node, _ int) node {
				return g.CrossEntropy(g.Linear(in[0], in[1], in[2]), in[3])
			}},
		{name: "a product of what is joined", sizes: around,
			in:   func(n int) [][]int { return [][]int{{n, 64}, {n, 64}, {128, 3}} },
			body: func(g *Graph, in []node, _ int) node { return g.MatMul(g.Concat(1, in[0], in[1]), in[2]) }},
		{name: "a sum of an embedding", sizes: []int{511, 512, 513}, ids: 7,
			in:   func(n int) [][]int { return [][]int{{7, 64}, {n}} },
			body: func(g *Graph, in []node, _ int) node { return g.Sum(g.Embedding(in[0], in[1]), 0) }},
		{name: "a cell of an LSTM", sizes: []int{64, 482, 500}, // 68 gates
			in:   func(n int) [][]int { return [][]int{{n, 8}, {8, 68}, {n, 17}, {17, 68}, {n, 17}} },
			body: cell},
		{name: "GLU", sizes: []int{64, 255, 256, 257, 500},
			in: func(n int) [][]int { return [][]int{{n, 8}, {8, 128}, {128}} },
			body: func(g *Graph, in []node, _ int) node {
				both := g.Linear(in[0], in[1], in[2])
				return g.Mul(g.Slice(both, 1, 0, 64), g.Sigmoid(g.Slice(both, 1, 64, 128)))
			}},
	}
}

// cell is the state of an LSTM after one more input.
func cell(g *Graph, in []node, _ int) node {
	gates := g.Add(g.MatMul(in[0], in[1]), g.MatMul(in[2], in[3]))
	gate := func(k int) node { return g.Slice(gates, 1, 17*k, 17*k+17) }
	c := g.Add(g.Mul(g.Sigmoid(gate(1)), in[4]), g.Mul(g.Sigmoid(gate(0)), g.Tanh(gate(2))))
	return g.Mul(g.Sigmoid(gate(3)), g.Tanh(c))
}

func TestAFunctionIsRightWithAValueThatNeedsABufferOfItsOwnFromItsFirstInstructionToItsLast(t *testing.T) {
	for k, s := range sizedCases() {
		for _, n := range s.sizes {
			c := opCase{name: fmt.Sprint(s.name, " ", n), body: func(g *Graph, in []node) node { return s.body(g, in, n) }}
			t.Run(c.name, func(t *testing.T) {
				r, args := rng(uint64(k)), []arg(nil)
				for _, shape := range s.in(n) {
					args = append(args, normal(r, shape...))
				}
				if last := len(args) - 1; s.ids > 0 {
					args[last] = ids(r, device.Int64, s.ids, args[last].shape...)
				}
				requireSubsets(t, c, args, device.Float32, here, 1e-5)
			})
		}
	}
}

// requireSubsets demands that a case, eager and compiled, is what the oracle says, whichever inputs
// want gradients.
func requireSubsets(t testing.TB, c opCase, args []arg, d device.Dtype, place func(*Tensor) *Tensor, tol float64) {
	t.Helper()
	b := build(t, c, d, args)
	y, grads := b.pulled(t, args)
	f := c.compiledFunc()
	subsets := wanting(args)
	for k, some := range subsets {
		want := outcome{shape: y.shape, y: y.v, grads: make([][]float64, len(args))}
		what := c.name + ", gradients of"
		for j, a := range some {
			if a.differentiable() {
				want.grads[j], what = grads[j], fmt.Sprint(what, " ", j)
			}
		}
		if k%3 == 0 { // op by op there is less to differ from subset to subset
			eager := runTensors(t, some, d, place, b.eager)
			requireRounded(t, want, eager, tol, what+", eager")
		}
		compiled := runTensors(t, some, d, place, func(in []*Tensor) *Tensor { return f.Call(in...) })
		requireRounded(t, want, compiled, tol, what+", compiled")
	}
}
