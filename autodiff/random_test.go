package autodiff

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/soak"
)

// choices are the decisions of a random program: from a random source, or from a fuzzer's bytes.
type choices struct {
	r     *rand.Rand
	bytes []byte
}

func (c *choices) pick(n int) int {
	switch {
	case n <= 1:
		return 0
	case c.r != nil:
		return c.r.IntN(n)
	case len(c.bytes) == 0:
		return 0
	}
	b := c.bytes[0]
	c.bytes = c.bytes[1:]
	return int(b) % n
}

// grow adds a random op over earlier nodes to a pool. The ops are smooth and keep values tame, so
// that finite differences hold. wild also lets ops fail.
func grow(g *Graph, pool []node, c *choices, wild bool) node {
	x, y := pool[c.pick(len(pool))], pool[c.pick(len(pool))]
	s := g.Type(x).Shape
	axis := c.pick(max(len(s), 1))
	fits := func(n node) bool { // broadcasts with x
		u := slices.Clone(g.Type(n).Shape)
		for a := range min(len(u), len(s)) {
			p, q := u[len(u)-1-a], s[len(s)-1-a]
			if p != q && p != 1 && q != 1 {
				return false
			}
		}
		return len(u) <= 3
	}
	if !wild && !fits(y) {
		y = x
	}
	if !wild && len(s) == 0 {
		return g.Add(g.Tanh(x), y)
	}
	switch c.pick(18) {
	case 0:
		return g.Add(x, y)
	case 1:
		return g.Sub(x, y)
	case 2:
		return g.Tanh(g.Mul(x, y))
	case 3:
		return g.Div(x, g.Shift(g.Exp(g.Tanh(y)), 1))
	case 4:
		return g.GELU(x)
	case 5:
		return g.Sigmoid(x)
	case 6:
		return g.Log(g.Shift(g.Mul(x, x), 1))
	case 7:
		return g.Sqrt(g.Shift(g.Mul(x, x), 1))
	case 8:
		return g.Scale(g.Neg(x), 0.7)
	case 9:
		return g.Sum(x, axis)
	case 10:
		return g.Mean(x, axis-len(s))
	case 11:
		return g.Transpose(x)
	case 12:
		return g.Reshape(x, -1, 1)
	case 13:
		return g.Slice(x, axis, 0, (slices.Concat(s, device.Shape{1})[axis]+1)/2)
	case 14:
		return g.Concat(axis, x, x)
	case 15:
		return g.Softmax(x, axis)
	case 16:
		return g.LogSoftmax(x, axis)
	}
	m, outer := g.Reshape(x, 1, -1), c.pick(2) == 0
	return g.Tanh(g.MatMulT(m, m, outer, !outer))
}

// maxElems keeps random programs small.
const maxElems = 64

// program is a body that grows some ops and ends in everything that nobody used.
func randomBody(c *choices, ops int, wild bool) func(g *Graph, in []node) node {
	start := *c
	if c.r != nil {
		start = choices{bytes: randomBytes(c.r, 8*ops)}
	}
	return func(g *Graph, in []node) node {
		c := start // the same decisions at every build
		pool := slices.Clone(in)
		for range ops {
			n := grow(g, pool, &c, wild)
			if g.Err() != nil {
				return nil
			}
			if g.Type(n).Shape.Elems() <= maxElems && len(g.Type(n).Shape) <= 4 {
				pool = append(pool, n)
			}
		}
		last := g.Sum(pool[0])
		for _, n := range pool[1:] {
			last = g.Add(last, g.Sum(g.Tanh(n)))
		}
		return last
	}
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func TestRandomGraphsAgreeWithTheOracleEagerlyAndCompiled(t *testing.T) {
	for i := range soak.Cases(60) {
		r := rng(uint64(1000 + i))
		args := []arg{normal(r, extents(r, 2)...), normal(r, extents(r, r.IntN(4))...), normal(r, 2, 3)}
		c := opCase{fmt.Sprint("random ", i), nil, randomBody(&choices{r: r}, 2+r.IntN(14), false), nil}
		b := build(t, c, device.Float64, args)
		y, grads := b.oracle(args), b.differences(args)
		f := c.compiledFunc()
		eager := runTensors(t, args, device.Float64, here, b.eager)
		compiled := runTensors(t, args, device.Float64, here, func(in []*Tensor) *Tensor { return f.Call(in...) })
		requireOutcome(t, y.shape, y.v, grads, eager, 1e-6, c.name)
		requireOutcome(t, y.shape, y.v, grads, compiled, 1e-6, c.name)
		requireRounded(t, eager, compiled, 1e-12, c.name)
		eager = runTensors(t, args, device.Float32, here, build(t, c, device.Float32, args).eager)
		compiled = runTensors(t, args, device.Float32, here, func(in []*Tensor) *Tensor { return f.Call(in...) })
		requireRounded(t, eager, compiled, 1e-5, c.name)
	}
}

// requireRounded demands that two outcomes are the same but for rounding, of numbers as large as
// the largest in them.
func requireRounded(t testing.TB, want, got outcome, tol float64, what string) {
	t.Helper()
	most := 1.0
	for _, vs := range append([][]float64{want.y}, want.grads...) {
		for _, v := range vs {
			if !math.IsInf(v, 0) {
				most = max(most, math.Abs(v))
			}
		}
	}
	requireWithin(t, want.y, got.y, tol*most, what)
	for j, g := range want.grads {
		requireWithin(t, g, got.grads[j], tol*most, fmt.Sprint(what, ", gradient ", j))
	}
}

// requireWithin demands |a−b| ≤ by everywhere. It is for long slices: testify's takes a microsecond
// for each element.
func requireWithin(t testing.TB, want, got []float64, by float64, what string) {
	t.Helper()
	require.Len(t, got, len(want), what)
	for i, w := range want {
		if g := got[i]; g != w && !(math.IsNaN(g) && math.IsNaN(w)) && !(math.Abs(g-w) <= by) {
			require.Failf(t, "too far apart", "%s: element %d is %v, want %v", what, i, g, w)
		}
	}
}

func TestRandomGraphsWithSeveralResultsPullBackAnySubset(t *testing.T) {
	for i := range soak.Cases(3) {
		r := rng(uint64(5000 + i))
		args := []arg{normal(r, 2, 3), normal(r, 3)}
		bodies := []func(g *Graph, in []node) node{randomBody(&choices{r: r}, 4, false), randomBody(&choices{r: r}, 4, false), randomBody(&choices{r: r}, 4, false)}
		f := &Func{name: "several", arity: -1, build: func(g *Graph, in []node) (out []node) {
			shared := []node{in[0], g.Tanh(in[1])}
			for _, b := range bodies {
				out = append(out, b(g, shared))
			}
			return append(out, in[0], out[0]) // an input, and a result twice
		}}
		for mask := 1; mask < 1<<5; mask++ {
			c := opCase{fmt.Sprint("results ", mask), nil, func(g *Graph, in []node) node {
				sum := g.Scale(g.Sum(in[1]), 0) // so that every input has a gradient
				for j, o := range f.build(g, in) {
					if mask&(1<<j) != 0 {
						sum = g.Add(sum, g.Sum(o))
					}
				}
				return sum
			}, nil}
			want := runTensors(t, args, device.Float64, here, build(t, c, device.Float64, args).eager)
			got := runTensors(t, args, device.Float64, here, func(in []*Tensor) *Tensor {
				sum := Scale(Sum(in[1]), 0)
				for j, o := range f.CallAll(in...) {
					if mask&(1<<j) != 0 {
						sum = Add(sum, Sum(o))
					}
				}
				return sum
			})
			for j := range want.grads {
				if want.grads[j] == nil {
					want.grads[j] = make([]float64, len(args[j].v))
				}
			}
			requireOutcome(t, want.shape, want.y, want.grads, got, 1e-9, c.name)
		}
	}
}

// FuzzPrograms runs whatever the bytes say. Nothing may panic; where the program is valid, the
// function, the ops one by one, and the oracle agree; where it is not, both ways report an error
// with this file's line.
func FuzzPrograms(f *testing.F) {
	f.Add([]byte{2, 3, 1, 4, 9, 1, 0, 2, 17})
	f.Add([]byte{0, 0, 0, 255, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22})
	f.Add([]byte{255, 255, 255, 255, 255, 255, 255, 255})
	f.Add([]byte("072121100A028"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 256 {
			return
		}
		c := &choices{bytes: data}
		shape := func() []int {
			s := make([]int, c.pick(4))
			for i := range s {
				s[i] = c.pick(4)
			}
			return s
		}
		r := rng(1)
		args := []arg{normal(r, shape()...), normal(r, shape()...)}
		k := opCase{"fuzzed", nil, randomBody(c, 1+c.pick(24), true), nil}
		fn := k.compiledFunc()
		whole := fn.Call(args[0].tensor(device.Float64).RequireGrad(), args[1].tensor(device.Float64))
		if whole.Err() != nil {
			require.ErrorContains(t, whole.Err(), "_test.go:")
			return
		}
		b := build(t, k, device.Float64, args)
		eager := runTensors(t, args, device.Float64, here, b.eager)
		compiled := runTensors(t, args, device.Float64, here, func(in []*Tensor) *Tensor { return fn.Call(in...) })
		y := b.oracle(args)
		requireClose(t, eager.y, compiled.y, 1e-9, "the ops one by one") // a transpose that is moved past a sum changes its order
		requireClose(t, y.v, compiled.y, 1e-6, "oracle")
		for j := range args {
			if compiled.grads[j] == nil { // an input that nothing used
				continue
			}
			requireClose(t, eager.grads[j], compiled.grads[j], 1e-9, "gradients")
		}
	})
}
