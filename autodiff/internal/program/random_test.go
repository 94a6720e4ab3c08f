package program

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/kerneltest"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/internal/thresholds"
	"github.com/weft-project/weft/kernels"
)

// grower grows a random unit with instructions of every kind, most of them on values that were made
// lately.
type grower struct {
	*rand.Rand
	*Unit
	d device.Dtype
}

func growUnit(r *rand.Rand) *Unit { return growSized(r) }

// growSized is growUnit with inputs of given numbers of elements before the others.
func growSized(r *rand.Rand, elems ...int) *Unit {
	g := grower{r, &Unit{Name: "random"}, device.Float32 + device.Dtype(r.IntN(2))}
	for _, n := range elems {
		d := 1 + g.IntN(8)
		for n%d != 0 {
			d--
		}
		s := device.Shape{n / d, d}
		if g.IntN(2) == 0 {
			slices.Reverse(s)
		}
		g.Input(kernels.Type{Dtype: g.d, Shape: s})
	}
	for range 1 + g.IntN(4) {
		g.Input(kernels.Type{Dtype: g.d, Shape: g.shape()})
	}
	for n := 1 + g.IntN(30); n > 0; n-- {
		g.grow()
	}
	for range 1 + g.IntN(4) {
		g.Results = append(g.Results, g.pick())
	}
	return g.Unit
}

func (g grower) extent() int { return []int{0, 1, 1, 2, 2, 3, 3, 4, 6}[g.IntN(9)] }

func (g grower) shape() device.Shape {
	s := make(device.Shape, g.IntN(5))
	for k := range s {
		s[k] = max(g.extent(), min(1, g.IntN(6)))
	}
	return s
}

func (g grower) pick() Value {
	n := len(g.Types)
	if g.IntN(3) > 0 {
		return Value(n - 1 - g.IntN(min(n, 4)))
	}
	return Value(g.IntN(n))
}

// do applies an instruction where it fits, and keeps values tame where it does: no overflow, no
// division by nearly nothing.
func (g grower) do(i kernels.Instr, in ...Value) Value {
	if vs, err := g.Apply(i, in...); err == nil {
		return vs[0]
	}
	return in[len(in)-1]
}

func (g grower) unary(fn kernels.UnaryFn, x Value) Value { return g.do(kernels.Unary{Fn: fn}, x) }

// partner is a value that broadcasts with x, if need be a new one.
func (g grower) partner(x Value) Value {
	for range 4 {
		y := g.pick()
		if _, err := (kernels.Binary{}).Infer(g.typesOf([]Value{x, y})); err == nil {
			return y
		}
	}
	s := slices.Clone(g.Types[x].Shape)
	switch g.IntN(4) {
	case 0:
		return g.do(kernels.Fill{Type: kernels.Type{Dtype: g.d, Shape: s.Clone()}, C: []float64{0, 1, -1, 0.3, 2}[g.IntN(5)]})
	case 1:
		s = s[g.IntN(len(s)+1):]
	}
	for k := range s {
		if g.IntN(4) == 0 {
			s[k] = 1
		}
	}
	return g.Input(kernels.Type{Dtype: g.d, Shape: s.Clone()})
}

func (g grower) grow() {
	x := g.pick()
	s := g.Types[x].Shape
	axis := 0
	if len(s) > 0 {
		axis = g.IntN(len(s))
	}
	switch g.IntN(20) {
	case 0, 1, 2:
		fns := []kernels.UnaryFn{kernels.Neg, kernels.Tanh, kernels.Sigmoid, kernels.Relu, kernels.Gelu}
		g.unary(fns[g.IntN(len(fns))], x)
	case 3, 4:
		g.do(kernels.Unary{Fn: kernels.Scale + kernels.UnaryFn(g.IntN(2)), C: []float64{1, 0, -1, 0.5, 0.7, 2, -3}[g.IntN(7)]}, x)
	case 5:
		g.unary(kernels.Exp, g.unary(kernels.Tanh, x))
	case 6:
		g.unary([]kernels.UnaryFn{kernels.Log, kernels.Sqrt}[g.IntN(2)], g.do(kernels.Unary{Fn: kernels.Shift, C: 0.5}, g.unary(kernels.Sigmoid, x)))
	case 7, 8, 9:
		g.do(kernels.Binary{Fn: kernels.BinaryFn(g.IntN(3))}, x, g.partner(x))
	case 10:
		y := g.do(kernels.Unary{Fn: kernels.Shift, C: 0.5}, g.unary(kernels.Sigmoid, g.partner(x)))
		g.do(kernels.Binary{Fn: kernels.Div}, x, y)
	case 11:
		g.do(kernels.Binary{Fn: kernels.TanhGrad + kernels.BinaryFn(g.IntN(4))}, x, g.partner(x))
	case 12:
		axes := g.Perm(len(s))[:g.IntN(len(s)+1)]
		if g.IntN(3) == 0 {
			axes = nil
		}
		g.do(kernels.Reduce{Fn: kernels.ReduceFn(g.IntN(3)), Axes: axes, Keep: g.IntN(2) == 0}, x)
	case 13, 14:
		g.product(x)
	case 15:
		g.opaque(x, axis)
	case 16:
		to := s.Clone()
		for k := range to {
			if to[k] == 1 {
				to[k] = g.extent()
			}
		}
		if len(to) < 4 && g.IntN(2) == 0 {
			to = append(device.Shape{1 + g.IntN(2)}, to...)
		}
		g.do(kernels.BroadcastTo{Shape: to}, x)
	case 17:
		g.do(kernels.Reshape{Shape: g.reshaped(s)}, x)
	default:
		g.move(x, axis)
	}
}

// reshaped joins, splits and adds axes.
func (g grower) reshaped(s device.Shape) device.Shape {
	switch k := g.IntN(4); {
	case k == 0 || len(s) == 0:
		return append(device.Shape{1}, s...)
	case k == 1:
		return device.Shape{s.Elems()}
	case k == 2 && s[0]%2 == 0:
		return append(device.Shape{2, s[0] / 2}, s[1:]...)
	case len(s) > 1:
		return append(device.Shape{s[0] * s[1]}, s[2:]...)
	}
	return append(s.Clone(), 1)
}

func (g grower) move(x Value, axis int) {
	s := g.Types[x].Shape
	if len(s) == 0 {
		return
	}
	n := s[axis]
	switch g.IntN(6) {
	case 0, 1:
		g.do(kernels.Transpose{Perm: g.Perm(len(s))}, x)
	case 2:
		start := g.IntN(n + 1)
		g.do(kernels.Slice{Axis: axis, Start: start, Stop: start + g.IntN(n-start+1)}, x)
	case 3: // cut, and put together again in some way
		at := g.IntN(n + 1)
		a := g.do(kernels.Slice{Axis: axis, Stop: at}, x)
		b := g.do(kernels.Slice{Axis: axis, Start: at, Stop: n}, x)
		if g.IntN(2) == 0 {
			g.do(kernels.Concat{Axis: axis}, a, b)
			return
		}
		a = g.do(kernels.Pad{Axis: axis, After: n - at}, g.unary(kernels.Tanh, a))
		b = g.do(kernels.Pad{Axis: axis, Before: at}, b)
		g.do(kernels.Binary{Fn: kernels.Add}, b, a)
	case 4:
		g.do(kernels.Pad{Axis: axis, Before: g.IntN(2), After: g.IntN(3)}, x)
	case 5:
		g.do(kernels.Concat{Axis: axis}, x, g.unary(kernels.Tanh, x))
	}
}

// product multiplies x with something, perhaps seen through moves, perhaps with a bias and an
// activation behind it.
func (g grower) product(x Value) {
	s := g.Types[x].Shape
	if len(s) < 2 {
		return
	}
	r := len(s)
	op := kernels.MatMul{TransA: g.IntN(2) == 0, TransB: g.IntN(2) == 0}
	k := s[r-1]
	if op.TransA {
		k = s[r-2]
	}
	n := g.extent()
	b := device.Shape{k, n}
	if op.TransB {
		b = device.Shape{n, k}
	}
	if g.IntN(2) == 0 {
		b = append(s[:r-2].Clone(), b...)
	}
	w := g.Input(kernels.Type{Dtype: g.d, Shape: b.Clone()})
	if g.IntN(3) == 0 {
		perm := make([]int, len(b))
		for k := range perm {
			perm[k] = k
		}
		perm[len(b)-1], perm[len(b)-2] = len(b)-2, len(b)-1
		op.TransB = !op.TransB
		w = g.do(kernels.Transpose{Perm: perm}, w)
	}
	c := g.do(op, x, w)
	if g.IntN(2) == 0 {
		c = g.do(kernels.Binary{}, c, g.partner(c))
	}
	if g.IntN(2) == 0 {
		c = g.unary(kernels.Relu, c)
	}
	if g.IntN(3) == 0 {
		axes := []int{}
		for k := range g.Types[c].Shape[:max(len(g.Types[c].Shape)-1, 0)] {
			axes = append(axes, k)
		}
		g.do(kernels.Reduce{Axes: axes}, c)
	}
}

// opaque applies what no pass looks into.
func (g grower) opaque(x Value, axis int) {
	switch g.IntN(5) {
	case 4:
		g.attention(x)
	case 0:
		y := g.do(kernels.Softmax{Axis: axis}, x)
		g.do(kernels.SoftmaxGrad{Axis: axis}, y, g.partner(y))
	case 1:
		g.do(kernels.Normalize{Eps: 0.1}, x)
	case 2:
		g.do(kernels.NormalizeGrad{Eps: 0.1}, x, g.partner(x))
	case 3:
		y := g.do(kernels.Reduce{Fn: kernels.Max, Axes: []int{axis}}, x)
		if g.Types[y].Shape.Equal(g.Types[x].Shape) {
			return
		}
		g.do(kernels.MaxGrad{Axes: []int{axis}}, x, y, y)
	}
}

// attention lets a value of three axes attend to itself, in heads of one element, and joins the
// gradients in some order.
func (g grower) attention(x Value) {
	s := g.Types[x].Shape
	if len(s) != 3 || s.Elems() > 500 {
		return
	}
	causal := g.IntN(2) == 0
	x = g.do(kernels.Reshape{Shape: device.Shape{s[0], s[1], s[2], 1}}, x)
	k := x
	if s[2]%2 == 0 && g.IntN(2) == 0 { // two heads share each
		k = g.do(kernels.Slice{Axis: 2, Stop: s[2] / 2}, x)
	}
	made := g.all(kernels.Attention{Causal: causal}, x, k, k)
	grads := slices.Clone(g.all(kernels.AttentionGrad{Causal: causal}, x, k, k, made[0], made[1], g.unary(kernels.Tanh, made[0])))
	if g.IntN(2) == 0 {
		g.Shuffle(3, func(a, b int) { grads[a], grads[b] = grads[b], grads[a] })
	}
	g.do(kernels.Concat{Axis: 2}, grads...)
}

// all is do of an instruction with several results.
func (g grower) all(i kernels.Instr, in ...Value) []Value {
	vs, err := g.Apply(i, in...)
	if err != nil {
		panic(err)
	}
	return vs
}

// randomTensors are inputs; in one unit of four they have infinities and NaN in them.
func randomTensors(r *rand.Rand, u *Unit) []kerneltest.Tensor {
	wild := r.IntN(4) == 0
	var in []kerneltest.Tensor
	for _, v := range u.Given {
		x := kerneltest.New(u.Types[v].Dtype, u.Types[v].Shape, 0)
		for k := range x.V {
			x.V[k] = float64(float32(r.NormFloat64()))
			if wild && r.IntN(6) == 0 {
				x.V[k] = []float64{math.Inf(1), math.Inf(-1), math.NaN(), 0}[r.IntN(4)]
			}
		}
		in = append(in, x)
	}
	return in
}

// difference tells where the results of two units differ by more than the rounding of values as
// large as the largest there is.
func difference(a, b *Unit, va, vb []kerneltest.Tensor) string {
	most := 1.0
	for _, x := range va {
		for _, v := range x.V {
			if !math.IsInf(v, 0) && !math.IsNaN(v) {
				most = max(most, math.Abs(v))
			}
		}
	}
	if len(a.Results) != len(b.Results) {
		return "the results are not as many"
	}
	for k, v := range a.Results {
		want, got := va[v], vb[b.Results[k]]
		if !want.Type.Equal(got.Type) {
			return fmt.Sprintf("result %d is %v, not %v", k, got.Type, want.Type)
		}
		tol := 1e-12 * most
		if want.Dtype == device.Float32 {
			tol = 1e-5 * most
		}
		for n, w := range want.V {
			g := got.V[n]
			if g != w && !(math.IsNaN(g) && math.IsNaN(w)) && !(math.Abs(g-w) <= tol) {
				return fmt.Sprintf("result %d at %d: %v, not %v\nbefore: %v\nafter: %v", k, n, g, w, a, b)
			}
		}
	}
	return ""
}

// onEdge says whether some function with a step, or a tie of maxima, has an operand so near to it
// that rounding decides.
func onEdge(u *Unit, values []kerneltest.Tensor) bool {
	for _, i := range u.Insts {
		switch op := i.Instr.(type) {
		case kernels.MaxGrad:
			return true
		case kernels.Binary:
			if op.Fn != kernels.ReluGrad {
				continue
			}
			for _, x := range values[i.In[0]].V {
				if math.Abs(x) < 1e-4 {
					return true
				}
			}
		}
	}
	return false
}

func (u *Unit) clone() *Unit {
	c := *u
	c.Types, c.Given, c.Insts, c.Results = slices.Clone(u.Types), slices.Clone(u.Given), slices.Clone(u.Insts), slices.Clone(u.Results)
	return &c
}

func TestEveryPassKeepsTheResultsOfRandomUnits(t *testing.T) {
	edges := 0
	cases, sizes := soak.Cases(300), thresholds.Around(thresholds.Passes)
	for seed := range cases {
		r := rand.New(rand.NewPCG(uint64(seed), 77))
		u := growUnit(r)
		if seed%33 == 0 {
			at, side := sizes.Next()
			u = growSized(r, at.Elems(8, side))
		}
		require.NoError(t, u.Check())
		in := randomTensors(r, u)
		want := evaluate(t, u, in, interpret)
		if onEdge(u, want) {
			edges++
			continue
		}
		for name, pass := range passes {
			after := u.clone()
			before := after.String()
			pass(after)
			require.NoError(t, after.Check(), "%s of seed %d:\n%s", name, seed, before)
			require.Empty(t, difference(u, after, want, evaluate(t, after, in, interpret)), name)
			require.Empty(t, difference(u, after, want, evaluate(t, after, in, onBackend)), "%s, with the kernels of its instructions", name)
			require.Equal(t, before, u.String(), "%s writes into what the unit shares", name)
		}
	}
	require.Less(t, edges, cases/2, "too few units show anything")
	require.Empty(t, sizes.Missing())
}

func TestAPassThatIsWrongIsFound(t *testing.T) {
	text := "wrong\ngiven %0 float64(2, 3), %1 float64(3)\n%2 = Add %0 %1\n%3 = Sum(axes=[1], keep=false) %2\nresults %3\n"
	u := parseUnit(t, text)
	in := []kerneltest.Tensor{kerneltest.New(device.Float64, device.Shape{2, 3}, 1, -2, 4), kerneltest.New(device.Float64, device.Shape{3}, 3, 5, 0.5)}
	for _, wrong := range []func(u *Unit){
		func(u *Unit) { u.Insts[0].Instr = kernels.Binary{Fn: kernels.Sub} },
		func(u *Unit) { u.Insts[1].Instr = kernels.Reduce{Fn: kernels.Max, Axes: []int{1}} },
		func(u *Unit) { u.Results[0] = 2 },
		func(u *Unit) { u.Results = nil },
	} {
		after := parseUnit(t, text)
		wrong(after)
		require.NotEmpty(t, difference(u, after, evaluate(t, u, in, interpret), evaluate(t, after, in, interpret)))
	}
}
