package autodiff

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/autodiff/internal/expr"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

type node = *gorgonia.Node

// arg is an input of a case. dtype Invalid means the float type under test.
type arg struct {
	nd
	dtype  device.Dtype
	frozen bool // no gradient is wanted
}

func (a arg) typ(float device.Dtype) kernels.Type {
	if a.dtype != device.Invalid {
		float = a.dtype
	}
	return kernels.Type{Dtype: float, Shape: a.shape}
}

func (a arg) tensor(float device.Dtype) *Tensor { return tensorOf(a.nd, a.typ(float).Dtype) }

// differentiable says that gradients are wanted for the argument.
func (a arg) differentiable() bool { return a.dtype == device.Invalid && !a.frozen }

// wanting is every way to want gradients of some of the arguments and not of the others.
func wanting(args []arg) (subsets [][]arg) {
	subsets = [][]arg{slices.Clone(args)}
	for j, a := range args {
		if a.differentiable() {
			for _, s := range subsets {
				s = slices.Clone(s)
				s[j].frozen = true
				subsets = append(subsets, s)
			}
		}
	}
	return subsets
}

// opCase is one use of one op, or a few: inputs, which may be random, and a body. counterpart is
// the same of Gorgonia's own ops, where there is one.
type opCase struct {
	name        string
	in          func(r *rand.Rand) []arg
	body        func(g *Graph, in []node) node
	counterpart func(in []node) (node, error)
}

func rng(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 7)) }

// Kinds of inputs.

func values(r *rand.Rand, draw func(i int) float64, shape ...int) arg {
	x := newND(shape)
	for i := range x.v {
		x.v[i] = draw(i)
	}
	return arg{nd: x}
}

func normal(r *rand.Rand, shape ...int) arg {
	return values(r, func(int) float64 { return r.NormFloat64() }, shape...)
}

func positive(r *rand.Rand, shape ...int) arg {
	return values(r, func(int) float64 { return 0.3 + 2*r.Float64() }, shape...)
}

// nonzero keeps away from 0, where ReLU has a corner and a quotient a pole.
func nonzero(r *rand.Rand, shape ...int) arg {
	return values(r, func(int) float64 { return math.Copysign(0.3+r.Float64(), r.Float64()-0.5) }, shape...)
}

// distinct has no two elements closer than a tenth, for Max.
func distinct(r *rand.Rand, shape ...int) arg {
	p := r.Perm(device.Shape(shape).Elems())
	return values(r, func(i int) float64 { return float64(p[i])/10 - 1 }, shape...)
}

func ids(r *rand.Rand, d device.Dtype, below int, shape ...int) arg {
	a := values(r, func(int) float64 { return float64(r.IntN(below)) }, shape...)
	a.dtype = d
	return a
}

// fixed makes an input generator of kinds and shapes that do not vary.
func fixed(kind func(*rand.Rand, ...int) arg, shapes ...[]int) func(*rand.Rand) []arg {
	return func(r *rand.Rand) []arg {
		var as []arg
		for _, s := range shapes {
			as = append(as, kind(r, s...))
		}
		return as
	}
}

// extents draws a shape of the given rank with extents from 1 to 4.
func extents(r *rand.Rand, rank int) []int {
	s := make([]int, rank)
	for i := range s {
		s[i] = 1 + r.IntN(4)
	}
	return s
}

func tensorOf(x nd, d device.Dtype) *Tensor {
	switch d {
	case device.Float32:
		return New(converted[float32](x.v), x.shape...).scalarIf(x.shape)
	case device.Float64:
		return New(x.v, x.shape...).scalarIf(x.shape)
	case device.Int32:
		return New(converted[int32](x.v), x.shape...).scalarIf(x.shape)
	}
	return New(converted[int64](x.v), x.shape...).scalarIf(x.shape)
}

// scalarIf drops the axis that New gives to data without a shape.
func (t *Tensor) scalarIf(s device.Shape) *Tensor {
	if len(s) == 0 {
		t.typ.Shape = device.Shape{}
	}
	return t
}

func converted[T device.Number](v []float64) []T {
	out := make([]T, len(v))
	for i, x := range v {
		out[i] = T(x)
	}
	return out
}

func widened[T device.Number](t *Tensor) ([]float64, error) {
	v, err := Values[T](t)
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = float64(x)
	}
	return out, err
}

// numbers reads a tensor of any dtype and device.
func numbers(t testing.TB, x *Tensor) []float64 {
	t.Helper()
	require.NoError(t, x.Err())
	read := widened[int64]
	switch x.Dtype() {
	case device.Float32:
		read = widened[float32]
	case device.Float64:
		read = widened[float64]
	case device.Int32:
		read = widened[int32]
	}
	v, err := read(x)
	require.NoError(t, err)
	return v
}

// built is a case's graph.
type built struct {
	g    *Graph
	in   []node
	args []arg
	y    node
}

func build(t testing.TB, c opCase, float device.Dtype, args []arg) built {
	t.Helper()
	require.NoError(t, expr.Lock())
	defer expr.Unlock()
	b := built{g: &Graph{expr.New(opError)}, args: args}
	for _, a := range args {
		b.in = append(b.in, b.g.of.Input(a.typ(float)))
	}
	b.y = c.body(b.g, b.in)
	require.NoError(t, b.g.Err())
	return b
}

// interpret walks the graph and computes every node with f; it gives the result.
func interpret[V any](b built, in []V, f func(op *Op, in []V) V) V {
	return interpretAll(b, in, f)[b.y]
}

// interpretAll is interpret that gives every node's value.
func interpretAll[V any](b built, in []V, f func(op *Op, in []V) V) map[node]V {
	of := map[node]V{}
	for i, n := range b.in {
		of[n] = in[i]
	}
	for _, n := range b.g.of.Nodes() {
		if op, ok := n.Op().(*Op); ok {
			var xs []V
			for _, x := range b.g.of.Operands(n) {
				xs = append(xs, of[x])
			}
			of[n] = f(op, xs)
		}
	}
	return of
}

func (b built) oracle(args []arg) nd {
	var in []nd
	for _, a := range args {
		in = append(in, a.nd)
	}
	return interpret(b, in, evaluate)
}

// pulled adds the reverse pass to the graph and computes all of it by the oracle, from the weights
// that [runTensors] gives. It takes the rules' word for the mathematics, which finite differences
// check where few elements do, and nobody's for how it is computed.
func (b built) pulled(t testing.TB, args []arg) (y nd, grads [][]float64) {
	t.Helper()
	require.NoError(t, expr.Lock())
	defer expr.Unlock()
	var in []nd
	var wrt []node
	for j, a := range args {
		in = append(in, a.nd)
		if a.differentiable() {
			wrt = append(wrt, b.in[j])
		}
	}
	typ := b.g.Type(b.y)
	gy := b.g.of.Input(typ)
	found, err := b.g.of.Reverse([]node{b.y}, []node{gy}, wrt)
	require.NoError(t, err)
	b.in, in = append(b.in, gy), append(in, nd{typ.Shape, weights(typ.Shape.Elems())})
	of := interpretAll(b, in, evaluate)
	grads = make([][]float64, len(args))
	for j, a := range args {
		if a.differentiable() {
			if d := found[0]; d != nil {
				grads[j] = of[d].v
			} else {
				grads[j] = make([]float64, len(a.v))
			}
			found = found[1:]
		}
	}
	return of[b.y], grads
}

// eager runs the case one op at a time.
func (b built) eager(in []*Tensor) *Tensor {
	return interpret(b, in, func(op *Op, in []*Tensor) *Tensor {
		i, ok := op.Instr.(kernels.Attention)
		switch {
		case !ok:
			return Run(op.Instr, in...)
		case op.Result > 0: // nobody reads it here
			return nil
		}
		return Attention(in[0], in[1], in[2], i.Causal)
	})
}

// compiledFunc is the case as one function.
func (c opCase) compiledFunc() *Func {
	return &Func{name: c.name, arity: -1, build: func(g *Graph, in []node) []node { return []node{c.body(g, in)} }}
}

// weights are the gradient that a test gives to a result: not uniform, so that mistakes show.
func weights(n int) []float64 {
	w := make([]float64, n)
	for i := range w {
		w[i] = math.Sin(float64(i)*1.7) + 0.3
	}
	return w
}

// differences are central finite differences of Σ weights·oracle for the differentiable arguments;
// nil for the others.
func (b built) differences(args []arg) [][]float64 {
	loss := func() (s float64) {
		y := b.oracle(args)
		for i, w := range weights(len(y.v)) {
			s += w * y.v[i]
		}
		return s
	}
	const h = 1e-5
	grads := make([][]float64, len(args))
	for j, a := range args {
		if !a.differentiable() {
			continue
		}
		grads[j] = make([]float64, len(a.v))
		for i, old := range a.v {
			a.v[i] = old + h
			up := loss()
			a.v[i] = old - h
			grads[j][i] = (up - loss()) / (2 * h)
			a.v[i] = old
		}
	}
	return grads
}

// outcome is what one way of running a case gives.
type outcome struct {
	shape device.Shape
	y     []float64
	grads [][]float64 // per argument, nil where none is wanted
}

// runTensors calls f on fresh tensors of the arguments and pulls the weights back. place says where
// the inputs go.
func runTensors(t testing.TB, args []arg, float device.Dtype, place func(*Tensor) *Tensor, f func(in []*Tensor) *Tensor) outcome {
	t.Helper()
	var in []*Tensor
	for _, a := range args {
		x := place(a.tensor(float))
		if a.differentiable() {
			x.RequireGrad()
		}
		in = append(in, x)
	}
	y := f(in)
	require.NoError(t, y.Err())
	o := outcome{shape: y.Shape(), y: numbers(t, y), grads: make([][]float64, len(in))}
	if !y.RequiresGrad() {
		return o
	}
	w := place(tensorOf(nd{y.Shape(), weights(len(o.y))}, y.Dtype()))
	g, err := BackwardWith(Options{Grads: []*Tensor{w}}, y)
	require.NoError(t, err)
	for j, x := range in {
		if d := g.Of(x); d != nil {
			require.True(t, d.Type().Equal(x.Type()), "gradient %v of %v", d.Type(), x.Type())
			require.Equal(t, x.Device(), d.Device())
			o.grads[j] = numbers(t, d)
		}
	}
	return o
}

func here(t *Tensor) *Tensor { return t }

// close demands |a−b| ≤ tol·max(1, |b|) everywhere.
func requireClose(t testing.TB, want, got []float64, tol float64, what string) {
	t.Helper()
	require.Len(t, got, len(want), what)
	for i := range want {
		if math.IsNaN(want[i]) && math.IsNaN(got[i]) {
			continue
		}
		if diff := math.Abs(want[i] - got[i]); !(diff <= tol*math.Max(1, math.Abs(want[i]))) {
			require.Failf(t, "too far apart", "%s: element %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

// requireOutcome compares with the oracle's forward and gradients. A missing gradient stands for
// zeros.
func requireOutcome(t testing.TB, shape device.Shape, y []float64, grads [][]float64, o outcome, tol float64, what string) {
	t.Helper()
	require.True(t, shape.Equal(o.shape), "%s: shape %v, want %v", what, o.shape, shape)
	requireClose(t, y, o.y, tol, what+": result")
	for j, g := range grads {
		switch {
		case g == nil:
			require.Nil(t, o.grads[j], "%s: a gradient for argument %d", what, j)
		case o.grads[j] == nil:
			requireClose(t, g, make([]float64, len(g)), tol, what+": absent gradient")
		default:
			requireClose(t, g, o.grads[j], tol, what+": gradient of argument "+string(rune('0'+j)))
		}
	}
}

// hasEmpty says that some shape has no elements, which Gorgonia's machines do not do.
func hasEmpty(b built) bool {
	return slices.ContainsFunc(b.g.of.Nodes(), func(n *gorgonia.Node) bool { return b.g.Type(n).Shape.Elems() == 0 })
}
