package autodiff

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/weft-project/weft/autodiff/internal/expr"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// gorgoniaTensor is an argument as a value of Gorgonia's.
func gorgoniaTensor(t testing.TB, a arg, float device.Dtype) gorgonia.Value {
	t.Helper()
	typ := a.typ(float)
	b, err := bufferFor(a.tensor(float))
	require.NoError(t, err)
	defer b.Release()
	v, err := expr.ValueOf(b, typ)
	require.NoError(t, err)
	return v
}

func bufferFor(x *Tensor) (*device.Buffer, error) { return x.Acquire() }

func fromGorgonia(t testing.TB, v gorgonia.Value) []float64 {
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

// onTape runs a graph of f's on a TapeMachine, with Gorgonia's own reverse pass from given weights.
func onTape(t testing.TB, args []arg, f func(g *Graph, in []node) (node, error)) outcome {
	t.Helper()
	require.NoError(t, expr.Lock())
	defer expr.Unlock()
	g := &Graph{expr.New(opError)}
	var in, wrt gorgonia.Nodes
	for _, a := range args {
		n := g.of.Input(a.typ(device.Float64))
		in = append(in, n)
		if a.differentiable() {
			wrt = append(wrt, n)
		}
	}
	y, err := f(g, in)
	require.NoError(t, err)
	require.NoError(t, g.Err())
	shape := device.Shape(y.Shape())
	w := g.of.Input(arg{nd: newND(shape)}.typ(device.Float64))
	grads, err := gorgonia.Backpropagate(gorgonia.Nodes{y}, gorgonia.Nodes{w}, wrt)
	require.NoError(t, err)
	read := make([]gorgonia.Value, 1+len(grads))
	gorgonia.Read(y, &read[0])
	for i, d := range grads {
		gorgonia.Read(d, &read[1+i])
	}
	for i, a := range args {
		require.NoError(t, gorgonia.Let(in[i], gorgoniaTensor(t, a, device.Float64)))
	}
	require.NoError(t, gorgonia.Let(w, gorgoniaTensor(t, arg{nd: nd{shape, weights(shape.Elems())}}, device.Float64)))
	vm := gorgonia.NewTapeMachine(g.ExprGraph())
	defer vm.Close()
	require.NoError(t, vm.RunAll())
	o := outcome{shape: shape, y: fromGorgonia(t, read[0]), grads: make([][]float64, len(args))}
	next := 1
	for i, a := range args {
		if a.differentiable() {
			o.grads[i] = fromGorgonia(t, read[next])
			next++
		}
	}
	return o
}

func TestEveryOpRunsOnGorgoniasTapeMachineWithGorgoniasReversePass(t *testing.T) {
	ran := 0
	for i, c := range cases() {
		args := c.in(rng(uint64(i)))
		b := build(t, c, device.Float64, args)
		if hasEmpty(b) {
			continue // the TapeMachine has no empty tensors
		}
		t.Run(c.name, func(t *testing.T) {
			o := onTape(t, args, func(g *Graph, in []node) (node, error) { return c.body(g, in), nil })
			requireOutcome(t, b.oracle(args).shape, b.oracle(args).v, b.differences(args), o, 1e-6, "TapeMachine")
		})
		ran++
	}
	require.Greater(t, ran, 100)
}

func TestOpsWithACounterpartInGorgoniaAgreeWithIt(t *testing.T) {
	ran := 0
	for i, c := range cases() {
		if c.counterpart == nil {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			args := c.in(rng(uint64(i)))
			b := build(t, c, device.Float64, args)
			theirs := onTape(t, args, func(_ *Graph, in []node) (node, error) { return c.counterpart(in) })
			ours := runTensors(t, args, device.Float64, here, b.eager)
			require.Equal(t, tensor.Shape(ours.shape).TotalSize(), tensor.Shape(theirs.shape).TotalSize())
			requireClose(t, theirs.y, ours.y, 1e-12, "result")
			for j := range args {
				requireClose(t, theirs.grads[j], ours.grads[j], 1e-9, fmt.Sprint("gradient ", j))
			}
		})
		ran++
	}
	require.Greater(t, ran, 40)
}

func TestGorgoniasGradOfAScalarGoesThroughOurOps(t *testing.T) {
	require.NoError(t, expr.Lock())
	defer expr.Unlock()
	g := &Graph{expr.New(opError)}
	x := g.of.Input(arg{nd: newND(device.Shape{2, 2})}.typ(device.Float64))
	y := g.Sum(g.Mul(g.Tanh(x), x)) // x is used twice: Gorgonia adds with its own op
	require.NoError(t, g.Err())
	grads, err := gorgonia.Grad(y, x)
	require.NoError(t, err)
	args := []arg{normal(rng(3), 2, 2)}
	require.NoError(t, gorgonia.Let(x, gorgoniaTensor(t, args[0], device.Float64)))
	vm := gorgonia.NewTapeMachine(g.ExprGraph())
	defer vm.Close()
	require.NoError(t, vm.RunAll())
	c := opCase{body: func(g *Graph, in []node) node { return g.Sum(g.Mul(g.Tanh(in[0]), in[0])) }}
	expr.Unlock()
	want := build(t, c, device.Float64, args)
	require.NoError(t, expr.Lock())
	got := fromGorgonia(t, grads[0].Value())
	for i := range got {
		got[i] *= weights(1)[0] // Grad begins with 1
	}
	requireClose(t, want.differences(args)[0], got, 1e-8, "gradient")
}

func TestAnOpIsADescriptionThatGorgoniaCanAskAbout(t *testing.T) {
	b := build(t, opCase{body: func(g *Graph, in []node) node { return g.Embedding(in[0], in[1]) }}, device.Float32,
		[]arg{normal(rng(1), 3, 2), ids(rng(1), device.Int32, 3, 4)})
	op := b.y.Op().(*Op)
	require.Len(t, b.g.ExprGraph().AllNodes(), 3)
	require.Equal(t, 2, op.Arity())
	require.Equal(t, []bool{true, false}, op.DiffWRT(2))
	require.Equal(t, -1, op.OverwritesInput())
	require.True(t, op.ReturnsPtr())
	require.False(t, op.CallsExtern())
	require.Equal(t, "Gather", op.String())
	require.NotSame(t, op.Type(), op.Type())
	s, err := op.InferShape(tensor.Shape{3, 2}, tensor.Shape{4})
	require.NoError(t, err)
	require.Equal(t, tensor.Shape{4, 2}, s)
	_, err = op.InferShape(tensor.Shape{3, 2})
	require.Error(t, err)
	table := gorgoniaTensor(t, b.args[0], device.Float32)
	_, err = op.Do(table, table)
	require.ErrorIs(t, err, ErrDtype, "ids must be int32")
	_, err = op.Do(table, tensor.New(tensor.WithBacking([]int32{0, 1})))
	require.ErrorIs(t, err, ErrDtype, "four ids were promised")
	for _, n := range []int{1, 3} {
		_, err = op.Do([]gorgonia.Value{table, table, table}[:n]...)
		require.ErrorContains(t, err, "takes 2 operands")
	}
	_, err = op.Do(table, tensor.New(tensor.WithBacking([]int32{0, 1, 2, 3})))
	require.ErrorContains(t, err, "index out of range")
}

func TestOpsThatComputeOnGorgoniasMachinesLeaveNoBuffers(t *testing.T) {
	b := build(t, opCase{body: func(g *Graph, in []node) node { return g.Exp(in[0]) }}, device.Float64, []arg{normal(rng(1), 3)})
	before := device.Host().Stats().Live
	v := gorgoniaTensor(t, b.args[0], device.Float64)
	for range 5 {
		_, err := b.y.Op().Do(v)
		require.NoError(t, err)
		_, err = b.y.Op().Do(tensor.New(tensor.WithBacking([]float32{1})))
		require.Error(t, err)
	}
	require.Equal(t, before, device.Host().Stats().Live)
}

func TestTheGraphOfABodyRunsOnGorgoniasMachine(t *testing.T) {
	var y []float64
	f := Define("f", func(g *Graph, a, b node) node {
		sum := g.Add(a, b)
		both := g.ApplyAll(kernels.Map{Shape: device.Shape{2}, Steps: []kernels.Step{{Op: kernels.Unary{Fn: kernels.Neg}}, {Op: kernels.Unary{Fn: kernels.Exp}}},
			Outs: []kernels.Out{{Reg: 1}, {Reg: 2}}}, sum)
		out := g.Mul(both[1], g.Sub(both[0], a))
		e := g.ExprGraph()
		require.Len(t, e.AllNodes(), 7)
		require.Len(t, e.Roots(), 1)
		for k, in := range e.Inputs() {
			require.NoError(t, gorgonia.Let(in, tensor.New(tensor.WithBacking([]float64{float64(k), 0.5}))))
		}
		vm := gorgonia.NewTapeMachine(e)
		defer vm.Close() //nolint:errcheck // it holds nothing
		require.NoError(t, vm.RunAll())
		y = fromGorgonia(t, e.Roots()[0].Value())
		return out
	})
	requireClose(t, numbers(t, f.Call(New([]float64{0, 0.5}), New([]float64{1, 0.5}))), y, 1e-12, "result")
}
