package autodiff

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
)

// edgeCase is an expression at one point, and what the gradients of its value are there, in both
// float types.
type edgeCase struct {
	name  string
	f     func(g *Graph, in []node) node
	at    []float64
	grads []float64 // anything where it is NaN
}

func edgeCases() []edgeCase {
	inf, anything, minusZero := math.Inf(1), math.NaN(), math.Copysign(0, -1)
	one := func(f func(*Graph, node) node) func(*Graph, []node) node {
		return func(g *Graph, in []node) node { return f(g, in[0]) }
	}
	two := func(f func(*Graph, node, node) node) func(*Graph, []node) node {
		return func(g *Graph, in []node) node { return f(g, in[0], in[1]) }
	}
	rootOf := func(f func(*Graph, []node) node) func(*Graph, []node) node {
		return func(g *Graph, in []node) node { return g.Sqrt(f(g, in)) }
	}
	minus := func(f func(*Graph, []node) node) func(*Graph, []node) node {
		return func(g *Graph, in []node) node { return g.Neg(f(g, in)) }
	}
	maximum, minimum, pow, div := two((*Graph).Maximum), two((*Graph).Minimum), two((*Graph).Pow), two((*Graph).Div)
	relu, abs := one((*Graph).ReLU), one((*Graph).Abs)
	largest := one(func(g *Graph, x node) node { return g.Max(x) })
	return []edgeCase{
		{"the loser of a maximum has no part in an infinite gradient", rootOf(maximum), []float64{-1, 0}, []float64{0, inf}},
		{"nor that of a minimum", rootOf(minus(minimum)), []float64{1, minusZero}, []float64{0, -inf}},
		{"both get half of a tie", maximum, []float64{2, 2}, []float64{0.5, 0.5}},
		{"infinities tie", minimum, []float64{inf, inf}, []float64{0.5, 0.5}},
		{"zeros of two signs tie", maximum, []float64{0, minusZero}, []float64{0.5, 0.5}},
		{"NaN loses to nothing", maximum, []float64{math.NaN(), 1}, []float64{1, 1}},
		{"0 by next to nothing", div, []float64{0, 1e-39}, []float64{anything, 0}},
		{"a negative power of 0", pow, []float64{0, -1.5}, []float64{-inf, -inf}},
		{"a negative odd power of −0", pow, []float64{minusZero, -3}, []float64{-inf, inf}},
		{"a positive power of 0", pow, []float64{0, 2}, []float64{0, 0}},
		{"the root of a positive power of 0", rootOf(pow), []float64{0, 1}, []float64{inf, 0}},
		{"the root of 3⁰−1", rootOf(func(g *Graph, in []node) node { return g.Shift(pow(g, in), -1) }), []float64{3, 0}, []float64{0, inf}},
		{"the root of an absolute value", rootOf(abs), []float64{0}, []float64{0}},
		{"ReLU passes a gradient where it is NaN", relu, []float64{math.NaN()}, []float64{1}},
		{"ReLU passes none below 0", rootOf(relu), []float64{-1}, []float64{0}},
		{"GELU of −Inf", one((*Graph).GELU), []float64{-inf}, []float64{0}},
		{"a maximum that is NaN", largest, []float64{math.NaN()}, []float64{1}},
		{"the root of a maximum of 0", rootOf(largest), []float64{0}, []float64{inf}},
	}
}

func TestGradientsAtTheEdgesAreRight(t *testing.T) {
	for _, d := range []device.Dtype{device.Float32, device.Float64} {
		for _, c := range edgeCases() {
			op := opCase{c.name, nil, c.f, nil}
			var args []arg
			for _, v := range c.at {
				args = append(args, arg{nd: nd{device.Shape{1}, []float64{v}}})
			}
			b, f := build(t, op, d, args), op.compiledFunc()
			for _, run := range []func(in []*Tensor) *Tensor{b.eager, func(in []*Tensor) *Tensor { return f.Call(in...) }} {
				var in []*Tensor
				for _, a := range args {
					in = append(in, a.tensor(d).RequireGrad())
				}
				g, err := Backward(Sum(run(in)))
				require.NoError(t, err)
				for j, x := range in {
					if want := c.grads[j]; !math.IsNaN(want) {
						assert.Equal(t, []float64{want}, numbers(t, g.Of(x)), "%v: %s: operand %d", d, c.name, j)
					}
				}
			}
		}
	}
}
