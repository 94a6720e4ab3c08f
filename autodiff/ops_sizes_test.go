//go:build !race

package autodiff

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff/internal/expr"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/thresholds"
	"github.com/weft-project/weft/kernels"
)

// stretched is the arguments with every extent of some length as another length. Their numbers are
// repeated.
func stretched(args []arg, from, to int) []arg {
	out := slices.Clone(args)
	for k, a := range args {
		s := a.shape.Clone()
		for axis, n := range s {
			if n == from {
				s[axis] = to
			}
		}
		out[k].nd = newND(s)
		for i := range out[k].v {
			out[k].v[i] = a.v[i%len(a.v)]
		}
	}
	return out
}

// lengths are the extents of arguments along which they can be stretched: those of some axis,
// longest arguments first.
func lengths(args []arg) (all []int) {
	byElems := slices.SortedStableFunc(slices.Values(args), func(a, b arg) int { return len(b.v) - len(a.v) })
	for _, a := range byElems {
		for _, n := range a.shape {
			if n > 0 && !slices.Contains(all, n) {
				all = append(all, n)
			}
		}
	}
	return all
}

// largest is the elements of the largest of the arguments.
func largest(args []arg) (n int) {
	for _, a := range args {
		n = max(n, a.shape.Elems())
	}
	return n
}

// work is about how many steps the oracle takes for the functions that are not one for each
// element, forward and backward: it goes through whole lines for each.
func work(b built) (n int) {
	for _, node := range b.g.of.Nodes() {
		op, ok := node.Op().(*Op)
		if !ok {
			continue
		}
		x := op.In[0].Shape
		switch i := op.Instr.(type) {
		case kernels.Softmax:
			n += x.Elems() * x[i.Axis]
		case kernels.LayerNorm, kernels.Normalize:
			n += x.Elems() * x[len(x)-1]
		case kernels.MatMul:
			n += b.g.Type(node).Shape.Elems() * max(x[len(x)-1], x[len(x)-2])
		case kernels.Attention:
			s := op.In[1].Shape[1]
			n += x[0] * x[1] * x[2] * s * s
		}
		n += b.g.Type(node).Shape.Elems()
	}
	return n
}

// aboutOp is the op that a case is about: the beginning of its name.
func aboutOp(c opCase) string {
	name, _, _ := strings.Cut(c.name, "[")
	name, _, _ = strings.Cut(name, " ")
	return name
}

// requireSized runs a case whose arguments were stretched. It says what it was: right, or refused;
// nothing where it would take too long.
func requireSized(t *testing.T, c opCase, args []arg) (ran bool, refused error) {
	t.Helper()
	var in []*Tensor
	for _, a := range args {
		in = append(in, a.tensor(device.Float64))
	}
	f := c.compiledFunc()
	require.NoError(t, expr.Lock())
	g := &Graph{expr.New(opError)}
	b := built{g: g, args: args}
	for _, a := range args {
		b.in = append(b.in, g.of.Input(a.typ(device.Float64)))
	}
	b.y = c.body(g, b.in)
	expr.Unlock()
	if g.Err() == nil && work(b) > 2_000_000 {
		return false, nil
	}
	if y := f.Call(in...); y.Err() != nil {
		return false, y.Err()
	}
	y, grads := b.pulled(t, args)
	want := outcome{shape: y.shape, y: y.v, grads: grads}
	compiled := runTensors(t, args, device.Float64, here, func(in []*Tensor) *Tensor { return f.Call(in...) })
	for j := range grads { // a gradient that nothing depends on may be absent
		if compiled.grads[j] == nil && args[j].differentiable() {
			compiled.grads[j] = make([]float64, len(args[j].v))
		}
	}
	require.True(t, want.shape.Equal(compiled.shape), "%s of %v", c.name, args)
	requireRounded(t, want, compiled, 1e-11, c.name+", compiled")
	return true, nil
}

// shaped are the ops that name their results' sizes, for n elements.
func shaped(n int) map[string]opCase {
	over := kernels.Window{Kernel: [2]int{3, 1}, Before: [2]int{1, 0}, After: [2]int{1, 0}}
	of := func(in func(r *rand.Rand) []arg, f func(g *Graph, in []node) node) opCase {
		return opCase{in: in, body: f}
	}
	return map[string]opCase{
		"Reshape":     of(fixed(normal, []int{n}), func(g *Graph, in []node) node { return g.Reshape(in[0], n, 1) }),
		"BroadcastTo": of(fixed(normal, []int{n}), func(g *Graph, in []node) node { return g.BroadcastTo(in[0], 2, n) }),
		"Col2im": of(fixed(normal, []int{1, n, 1, 3}), func(g *Graph, in []node) node {
			return g.Apply(kernels.Col2im{Im2col: kernels.Im2col{Window: over, Rows: true}, Channels: 1, Height: n, Width: 1}, in[0])
		}),
		"ConvTranspose2d": of(fixed(normal, []int{1, 1, n, 1}, []int{1, 1, 3, 1}), func(g *Graph, in []node) node {
			return g.ConvTranspose2d(in[0], in[1], over, n, 1)
		}),
	}
}

// sizesOf are the numbers of elements to try, with which row fewer or more: none, one, and those at
// the thresholds of programs.
func sizesOf(t *testing.T) (all [][2]int) {
	sizes := thresholds.Around(thresholds.Programs)
	for range sizes.Len() {
		at, side := sizes.Next()
		if s := [2]int{at.Elems(8, 0), side}; !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	require.Empty(t, sizes.Missing())
	return all
}

// stretchTo finds a case of an op, and an extent of its arguments, that can be as large as is asked
// for, and requires that it is right there.
func stretchTo(t *testing.T, cs []opCase, elems, side int) bool {
	t.Helper()
	for try := range 3 * len(cs) {
		c := cs[try%len(cs)]
		args := c.in(rng(uint64(try)))
		for _, from := range lengths(args) {
			some := stretched(args, from, max(elems*from/max(largest(args), 1)+side, 0))
			if largest(some) > 4*elems+1000 || 2*largest(some) < elems-100 {
				continue
			}
			if ran, _ := requireSized(t, c, some); ran {
				return true
			}
		}
	}
	return false
}

// TestEveryOpIsRightOrRefusedAtEverySize stretches the arguments of every kind of op in the table
// to no elements, to one, and to as many as at every threshold, and one row fewer and more.
func TestEveryOpIsRightOrRefusedAtEverySize(t *testing.T) {
	kinds := map[string][]opCase{}
	for _, c := range cases() {
		kinds[aboutOp(c)] = append(kinds[aboutOp(c)], c)
	}
	refused := func(t *testing.T, c opCase, args []arg) {
		if _, err := requireSized(t, c, args); err != nil {
			require.NotContains(t, err.Error(), "panic", c.name)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		t.Run(kind, func(t *testing.T) {
			_, named := shaped(0)[kind]
			for n := range 2 {
				for _, c := range kinds[kind][:min(3, len(kinds[kind]))] {
					args := c.in(rng(1))
					for _, from := range lengths(args) {
						refused(t, c, stretched(args, from, n))
					}
				}
				if c := shaped(n)[kind]; named {
					refused(t, c, c.in(rng(1)))
				}
			}
			for _, s := range sizesOf(t) {
				if c := shaped(s[0] + s[1])[kind]; named {
					ran, err := requireSized(t, c, c.in(rng(1)))
					require.NoError(t, err)
					require.True(t, ran)
					continue
				}
				if !stretchTo(t, kinds[kind], s[0], s[1]) { // all images of the table are larger than a few elements
					require.Less(t, s[0], 100, "no case can be stretched to so many elements")
				}
			}
		})
	}
}
