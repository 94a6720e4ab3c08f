package gorgonia

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
)

// model is a net written with Gorgonia's own functions: data first among its leaves, then
// parameters, and a loss.
type model struct {
	data, params []*gorgonia.Node
	loss         *gorgonia.Node
}

func (m model) inputs() []*gorgonia.Node { return append(append([]node{}, m.data...), m.params...) }

// param is a leaf with a reproducible random value.
func (m *model) param(g *gorgonia.ExprGraph, r *rand.Rand, scale float64, shape ...int) *gorgonia.Node {
	v := normal(r, shape...)
	for i := range v.v {
		v.v[i] *= scale
	}
	n := leafOf(g, tensor.Float64, fmt.Sprint("param", len(m.params)), shape,
		gorgonia.WithValue(tensor.New(tensor.WithShape(shape...), tensor.WithBacking(v.v))))
	m.params = append(m.params, n)
	return n
}

// lstm is a cell that is run over some steps, and a linear readout: the loss is the mean square of
// its error.
func lstm() model {
	const batch, in, hidden, steps = 4, 3, 5, 4
	g, r := gorgonia.NewGraph(), rng(1)
	var m model
	for i := range steps {
		m.data = append(m.data, leafOf(g, tensor.Float64, fmt.Sprint("x", i), []int{batch, in}))
	}
	want := leafOf(g, tensor.Float64, "want", []int{batch, 1})
	gate := func(squash func(*gorgonia.Node) (*gorgonia.Node, error)) func(x, h *gorgonia.Node) *gorgonia.Node {
		wx, wh, b := m.param(g, r, 0.5, in, hidden), m.param(g, r, 0.5, hidden, hidden), m.param(g, r, 0.1, 1, hidden)
		return func(x, h *gorgonia.Node) *gorgonia.Node {
			sum := must(gorgonia.Add(must(gorgonia.Mul(x, wx)), must(gorgonia.Mul(h, wh))))
			return must(squash(must(gorgonia.BroadcastAdd(sum, b, nil, []byte{0}))))
		}
	}
	input, forget, output, fresh := gate(gorgonia.Sigmoid), gate(gorgonia.Sigmoid), gate(gorgonia.Sigmoid), gate(gorgonia.Tanh)
	zeros := func(name string) *gorgonia.Node {
		return leafOf(g, tensor.Float64, name, []int{batch, hidden}, gorgonia.WithInit(gorgonia.Zeroes()))
	}
	h, c := zeros("h"), zeros("c")
	for _, x := range m.data {
		c = must(gorgonia.Add(must(gorgonia.HadamardProd(forget(x, h), c)), must(gorgonia.HadamardProd(input(x, h), fresh(x, h)))))
		h = must(gorgonia.HadamardProd(output(x, h), must(gorgonia.Tanh(c))))
	}
	y := must(gorgonia.Mul(h, m.param(g, r, 0.5, hidden, 1)))
	m.data = append(m.data, want)
	m.loss = must(gorgonia.Mean(must(gorgonia.Square(must(gorgonia.Sub(y, want))))))
	return m
}

// convnet is like the MNIST example of Gorgonia's: two convolutions with pooling, a hidden layer,
// and log of softmax. With norm it has a batch norm, whose scale and bias are parameters.
func convnet(norm bool, batch, size int) model {
	const classes = 5
	g, r := gorgonia.NewGraph(), rng(2)
	m := model{data: []node{leafOf(g, tensor.Float64, "x", []int{batch, 1, size, size}), leafOf(g, tensor.Float64, "y", []int{batch, classes})}}
	layer := func(x *gorgonia.Node, from, to int) *gorgonia.Node {
		ones := []int{1, 1}
		h := must(gorgonia.Conv2d(x, m.param(g, r, 0.4, to, from, 3, 3), tensor.Shape{3, 3}, ones, ones, ones))
		if norm {
			y, _, _, _, err := gorgonia.BatchNorm(h, m.param(g, r, 1, 1, to, 1, 1), m.param(g, r, 0.1, 1, to, 1, 1), 0.1, 1e-5)
			h = must(y, err)
		}
		return must(gorgonia.MaxPool2D(must(gorgonia.Rectify(h)), tensor.Shape{2, 2}, []int{0, 0}, []int{2, 2}))
	}
	h := layer(layer(m.data[0], 1, 3), 3, 4)
	h = must(gorgonia.Reshape(h, tensor.Shape{batch, 4 * size * size / 16}))
	h = must(gorgonia.Rectify(must(gorgonia.Mul(h, m.param(g, r, 0.2, 4*size*size/16, 16)))))
	out := must(gorgonia.Mul(h, m.param(g, r, 0.3, 16, classes)))
	logs := must(gorgonia.Log(must(gorgonia.SoftMax(out))))
	m.loss = must(gorgonia.Neg(must(gorgonia.Mean(must(gorgonia.HadamardProd(logs, m.data[1]))))))
	return m
}

// labelled is batch with one 1 in each row of the last leaf.
func (m model) labelled(r *rand.Rand) []arg {
	as := m.batch(r)
	y := as[len(as)-1]
	clear(y.v)
	for row := range y.shape[0] {
		y.v[row*y.shape[1]+r.IntN(y.shape[1])] = 1
	}
	return as
}

// batch draws data for the model's leaves.
func (m model) batch(r *rand.Rand) []arg {
	var as []arg
	for _, n := range m.data {
		as = append(as, normal(r, n.Shape()...))
	}
	return as
}

// onTapeMachine trains by plain gradient descent on Gorgonia's machine and gives the loss of every
// step.
func (m model) onTapeMachine(t *testing.T, steps int, rate float64, batch func(step int) []arg) (losses []float64) {
	t.Helper()
	_, err := gorgonia.Grad(m.loss, m.params...)
	require.NoError(t, err)
	var loss gorgonia.Value
	gorgonia.Read(m.loss, &loss)
	vm := gorgonia.NewTapeMachine(m.loss.Graph(), gorgonia.BindDualValues(m.params...))
	defer vm.Close() //nolint:errcheck // it holds nothing
	solver := gorgonia.NewVanillaSolver(gorgonia.WithLearnRate(rate))
	for step := range steps {
		for k, a := range batch(step) {
			require.NoError(t, gorgonia.Let(m.data[k], theirValue(a)))
		}
		require.NoError(t, vm.RunAll())
		losses = append(losses, loss.Data().(float64))
		require.NoError(t, solver.Step(gorgonia.NodesToValueGrads(m.params)))
		vm.Reset()
	}
	return losses
}

// here trains the same with Weft.
func (m model) here(t *testing.T, steps int, rate float64, batch func(step int) []arg) (losses []float64) {
	t.Helper()
	f, err := From(m.inputs(), []node{m.loss})
	require.NoError(t, err)
	params, err := FromParams(m.params...)
	require.NoError(t, err)
	for step := range steps {
		var in []*autodiff.Tensor
		for _, a := range batch(step) {
			in = append(in, a.tensor(device.Float64))
		}
		loss := f.Call(append(in, params...)...)
		v, err := loss.Item()
		require.NoError(t, err)
		losses = append(losses, v)
		grads, err := autodiff.Backward(loss)
		require.NoError(t, err)
		for k, p := range params {
			params[k] = autodiff.Sub(p, autodiff.Scale(grads.Of(p), rate)).Detach().RequireGrad()
		}
	}
	require.NoError(t, ToParams(m.params, params))
	return losses
}

func TestModelsOfGorgoniasTrainHereWithTheLossesThatTheyHaveOnTheTapeMachine(t *testing.T) {
	for name, c := range map[string]struct {
		build func() model
		batch func(m model, r *rand.Rand) []arg
		rate  float64
	}{
		"an LSTM":                   {lstm, model.batch, 0.5},
		"a convnet":                 {func() model { return convnet(false, 4, 12) }, model.labelled, 0.5},
		"a convnet with batch norm": {func() model { return convnet(true, 4, 12) }, model.labelled, 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			m := c.build()
			fixed := c.batch(m, rng(5))
			batch := func(int) []arg { return fixed }
			got := m.here(t, 20, c.rate, batch)
			trained := numbers(t, FromValue(m.params[0].Value()))
			want := c.build() // the parameters of m are trained
			losses := want.onTapeMachine(t, 20, c.rate, batch)
			requireClose(t, losses, got, 1e-9, "losses")
			require.Less(t, got[19], 0.8*got[0])
			requireClose(t, numbers(t, FromValue(want.params[0].Value())), trained, 1e-9, "the first parameter")
		})
	}
}
