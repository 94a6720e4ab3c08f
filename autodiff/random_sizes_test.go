//go:build !race

package autodiff

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/internal/thresholds"
	"github.com/weft-project/weft/kernels"
)

// sizing grows a random function of few ops around one value of a given number of elements. Often
// its inputs and its result are small, so that the value lives within the program alone.
type sizing struct {
	*rand.Rand
	rows, cols int // of that value
	args       []arg
}

// divisors cuts n elements into rows and columns, more than one of each where that is possible.
func divisors(r *rand.Rand, n int) (rows, cols int) {
	all := []int{1}
	for d := 2; d*d <= n; d++ {
		if n%d == 0 {
			all = append(all, d)
		}
	}
	d := all[0]
	if len(all) > 1 {
		d = all[1+r.IntN(len(all)-1)]
	}
	if r.IntN(2) == 0 {
		return d, n / d
	}
	return n / d, d
}

func newSizing(r *rand.Rand, elems int) *sizing {
	s := &sizing{Rand: r}
	s.rows, s.cols = divisors(r, elems)
	return s
}

// input is another argument; the body reads it as in[k].
func (s *sizing) input(shape ...int) (k int) {
	s.args = append(s.args, normal(s.Rand, shape...))
	return len(s.args) - 1
}

// step makes a node of a function's inputs and of the node before.
type step func(g *Graph, in []node, x node) node

// first makes the value: it is an input, or an op on smaller ones.
func (s *sizing) first() step {
	switch s.IntN(8) {
	case 0:
		k := s.input(s.rows, s.cols)
		return func(g *Graph, in []node, _ node) node { return in[k] }
	case 1:
		a, b := s.input(s.rows, 1), s.input(s.cols)
		return func(g *Graph, in []node, _ node) node { return g.Mul(in[a], in[b]) }
	case 2:
		at := s.IntN(s.rows + 1)
		a, b := s.input(at, s.cols), s.input(s.rows-at, s.cols)
		return func(g *Graph, in []node, _ node) node { return g.Concat(0, in[a], in[b]) }
	case 3:
		table := s.input(1+s.IntN(3), s.cols)
		s.args = append(s.args, ids(s.Rand, device.Int64, s.args[table].shape[0], s.rows))
		return func(g *Graph, in []node, _ node) node { return g.Embedding(in[table], in[table+1]) }
	case 4:
		x, w := s.input(1, 1, s.rows, s.cols), s.input(1, 1, 1+2*s.IntN(2), 1)
		rows, cols := s.rows, s.cols
		over := kernels.Window{Before: [2]int{s.args[w].shape[2] / 2, 0}, After: [2]int{s.args[w].shape[2] / 2, 0}}
		return func(g *Graph, in []node, _ node) node {
			return g.Reshape(g.Conv2d(in[x], in[w], nil, over), rows, cols)
		}
	}
	inner := 1 + s.IntN(4)
	a, b := s.input(s.rows, inner), s.input(inner, s.cols)
	if s.IntN(3) > 0 {
		return func(g *Graph, in []node, _ node) node { return g.MatMul(in[a], in[b]) }
	}
	c := s.input(s.cols)
	return func(g *Graph, in []node, _ node) node { return g.Linear(in[a], in[b], in[c]) }
}

// most is along how many elements the oracle normalises: it goes through all of them for each.
const most = 48

// mostArgs is how many arguments a function has before its last step: each doubles the ways to want
// gradients.
const mostArgs = 2

// then makes something of the value, of as many elements.
func (s *sizing) then() step {
	more := mostArgs - len(s.args)
	switch k := s.IntN(9); {
	case k == 0:
		return func(g *Graph, _ []node, x node) node { return g.Tanh(x) }
	case k == 1:
		return func(g *Graph, _ []node, x node) node { return g.Add(g.Sigmoid(x), x) }
	case k == 2 && more > 0:
		b := s.input(s.cols)
		return func(g *Graph, in []node, x node) node { return g.Add(x, in[b]) }
	case k == 3 && more > 0:
		b := s.input(s.rows, 1)
		return func(g *Graph, in []node, x node) node { return g.Div(x, g.Shift(g.Exp(in[b]), 1)) }
	case k == 4 && s.cols <= most && s.cols > 0:
		return func(g *Graph, _ []node, x node) node { return g.Softmax(x, 1) }
	case k == 5 && more > 1 && s.cols <= most && s.cols > 1:
		gamma, beta := s.input(s.cols), s.input(s.cols)
		return func(g *Graph, in []node, x node) node { return g.LayerNorm(x, in[gamma], in[beta], 0.1) }
	case k == 6:
		s.rows, s.cols = s.cols, s.rows
		return func(g *Graph, _ []node, x node) node { return g.Transpose(x) }
	case k == 7:
		s.rows, s.cols = divisors(s.Rand, s.rows*s.cols)
		rows, cols := s.rows, s.cols
		return func(g *Graph, _ []node, x node) node { return g.Reshape(x, rows, cols) }
	}
	return func(g *Graph, _ []node, x node) node { return g.Scale(x, 0.7) }
}

// last makes the result, seldom as large as the value.
func (s *sizing) last() step {
	switch k := s.IntN(12); {
	case k == 0:
		return func(g *Graph, _ []node, x node) node { return x }
	case k == 1:
		return func(g *Graph, _ []node, x node) node { return g.Sum(g.Mul(x, x)) }
	case k == 2:
		return func(g *Graph, _ []node, x node) node { return g.Mean(x, 0) }
	case k == 3:
		return func(g *Graph, _ []node, x node) node { return g.Sum(x, 1) }
	case k == 4:
		stop := s.IntN(s.rows + 1)
		return func(g *Graph, _ []node, x node) node { return g.Slice(x, 0, stop/2, stop) }
	case k == 5:
		stop := s.IntN(s.cols + 1)
		return func(g *Graph, _ []node, x node) node { return g.Slice(x, 1, stop/2, stop) }
	case k == 6 && s.rows > 0 && s.cols > 0 && s.cols <= 8*most:
		labels := len(s.args)
		s.args = append(s.args, ids(s.Rand, device.Int64, s.cols, s.rows))
		return func(g *Graph, in []node, x node) node { return g.CrossEntropy(x, in[labels]) }
	}
	w := s.input(s.cols, 1+s.IntN(2))
	return func(g *Graph, in []node, x node) node { return g.MatMul(x, in[w]) }
}

// grow is a function with a value of so many elements.
func (s *sizing) grow() func(g *Graph, in []node) node {
	steps := []step{s.first()}
	for range s.IntN(5) - 2 {
		steps = append(steps, s.then())
	}
	steps = append(steps, s.last())
	return func(g *Graph, in []node) (x node) {
		for _, f := range steps {
			if x = f(g, in, x); x == nil {
				return nil
			}
		}
		return x
	}
}

// The race detector makes kernels several times slower. Where they run on several threads is looked
// at with it in their own package.

// TestRandomFunctionsAreRightAroundEveryThreshold draws values on both sides of every size at which
// a program takes another way.
func TestRandomFunctionsAreRightAroundEveryThreshold(t *testing.T) {
	sizes, memory := thresholds.Around(thresholds.Programs), thresholds.Around(thresholds.Programs, thresholds.Bytes)
	sim := device.NewSim(device.SimConfig{})
	for seed := range soak.Cases(500) {
		r := rng(uint64(seed) + 1<<20)
		d, tol, from, place := device.Float64, 1e-11, sizes, here
		if r.IntN(3) == 0 {
			d, tol = device.Float32, 1e-4
		}
		if seed%6 == 0 {
			from = memory
		}
		if r.IntN(8) == 0 {
			place = func(x *Tensor) *Tensor { return To(x, sim) }
		}
		at, side := from.Next()
		s := newSizing(r, at.Elems(d.Size(), side))
		c := opCase{name: fmt.Sprintf("seed=%d around %s%+d", seed, at.Name, side), body: s.grow()}
		t.Run(c.name, func(t *testing.T) { requireSubsets(t, c, s.args, d, place, tol) })
	}
	require.Empty(t, sizes.Missing())
}
