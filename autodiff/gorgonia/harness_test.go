package gorgonia

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
)

// arg is an input of a case.
type arg struct {
	shape device.Shape
	v     []float64
}

func rng(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 7)) }

func drawn(draw func(i int) float64, shape ...int) arg {
	a := arg{shape, make([]float64, device.Shape(shape).Elems())}
	for i := range a.v {
		a.v[i] = draw(i)
	}
	return a
}

func normal(r *rand.Rand, shape ...int) arg {
	return drawn(func(int) float64 { return r.NormFloat64() }, shape...)
}

func positive(r *rand.Rand, shape ...int) arg {
	return drawn(func(int) float64 { return 0.3 + 2*r.Float64() }, shape...)
}

// nonzero keeps away from 0, where ReLU has a corner and a quotient a pole.
func nonzero(r *rand.Rand, shape ...int) arg {
	return drawn(func(int) float64 { return math.Copysign(0.3+r.Float64(), r.Float64()-0.5) }, shape...)
}

// distinct has no two elements closer than a tenth, for Max.
func distinct(r *rand.Rand, shape ...int) arg {
	p := r.Perm(device.Shape(shape).Elems())
	return drawn(func(i int) float64 { return float64(p[i])/10 - 1 }, shape...)
}

// tensor is the argument with elements of a float type.
func (a arg) tensor(float device.Dtype) *autodiff.Tensor {
	if float == device.Float64 {
		return tensorOf(a.v, a.shape)
	}
	v := make([]float32, len(a.v))
	for i, x := range a.v {
		v[i] = float32(x)
	}
	return tensorOf(v, a.shape)
}

func tensorOf[T device.Number](v []T, shape device.Shape) *autodiff.Tensor {
	if len(shape) == 0 {
		return autodiff.Scalar(v[0])
	}
	return autodiff.New(v, shape...)
}

// theirValue is the argument as a value of Gorgonia's.
func theirValue(a arg) gorgonia.Value {
	if len(a.shape) == 0 {
		return gorgonia.NewF64(a.v[0])
	}
	return tensor.New(tensor.WithShape(a.shape...), tensor.WithBacking(append([]float64{}, a.v...)))
}

func theirNumbers(t testing.TB, v gorgonia.Value) []float64 {
	t.Helper()
	switch d := v.Data().(type) {
	case []float64:
		return d
	case float64:
		return []float64{d}
	}
	require.Failf(t, "not float64", "%T", v.Data())
	return nil
}

// numbers reads a tensor of any dtype.
func numbers(t testing.TB, x *autodiff.Tensor) []float64 {
	t.Helper()
	require.NoError(t, x.Err())
	switch x.Dtype() {
	case device.Float32:
		return wide[float32](t, x)
	case device.Float64:
		return wide[float64](t, x)
	case device.Int32:
		return wide[int32](t, x)
	}
	return wide[int64](t, x)
}

func wide[T device.Number](t testing.TB, x *autodiff.Tensor) []float64 {
	t.Helper()
	v, err := autodiff.Values[T](x)
	require.NoError(t, err)
	out := make([]float64, len(v))
	for i := range v {
		out[i] = float64(v[i])
	}
	return out
}

// weights are what results are multiplied with to make a loss of them.
func weights(n int) []float64 {
	w := make([]float64, n)
	for i := range w {
		w[i] = math.Sin(float64(i)*1.7) + 0.3
	}
	return w
}

// outcome is the result of a function, and the gradient of each argument; nil where it has none.
type outcome struct {
	shape device.Shape
	y     []float64
	grads [][]float64
}

// outcomeOf calls f on the arguments and pulls the weights back.
func outcomeOf(t testing.TB, f *autodiff.Func, args []arg, float device.Dtype) outcome {
	t.Helper()
	var in []*autodiff.Tensor
	for _, a := range args {
		in = append(in, a.tensor(float).RequireGrad())
	}
	y := f.Call(in...)
	require.NoError(t, y.Err())
	o := outcome{shape: y.Shape(), y: numbers(t, y), grads: make([][]float64, len(in))}
	if !y.RequiresGrad() {
		return o
	}
	w := arg{y.Shape(), weights(len(o.y))}.tensor(y.Dtype())
	g, err := autodiff.BackwardWith(autodiff.Options{Grads: []*autodiff.Tensor{w}}, y)
	require.NoError(t, err)
	for j, x := range in {
		if d := g.Of(x); d != nil {
			require.True(t, d.Type().Equal(x.Type()), "gradient %v of %v", d.Type(), x.Type())
			o.grads[j] = numbers(t, d)
		}
	}
	return o
}

// requireClose demands |a−b| ≤ tol·max(1, |b|) everywhere.
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

// requireOutcome compares with what the forward and the gradients should be. A missing gradient
// stands for zeros.
func requireOutcome(t testing.TB, shape device.Shape, y []float64, grads [][]float64, o outcome, tol float64, what string) {
	t.Helper()
	require.True(t, shape.Equal(o.shape), "%s: shape %v, want %v", what, o.shape, shape)
	requireClose(t, y, o.y, tol, what+": result")
	for j, g := range grads {
		got := o.grads[j]
		if got == nil {
			got = make([]float64, len(g))
		}
		requireClose(t, g, got, tol, what+": gradient of argument "+string(rune('0'+j)))
	}
}
