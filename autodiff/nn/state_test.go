package nn

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/weft-project/weft/autodiff"
	weftgorgonia "github.com/weft-project/weft/autodiff/gorgonia"
	"github.com/weft-project/weft/device"
)

// randomised is a model of a user's own, with its layers in a map and a function of Gorgonia's.
type randomised struct {
	Parts map[string]Layer
	Scale map[string]*autodiff.Tensor
	Taken *autodiff.Func
	Norm  *BatchNorm
	Noise *rand.PCG
	Plain *autodiff.Func // draws none
}

func newRandomised(t *testing.T, seed uint64) *randomised {
	src := rng(seed)
	g := gorgonia.NewGraph()
	x := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(8, 4), gorgonia.WithName("x"))
	y, err := gorgonia.Dropout(x, 0.5)
	require.NoError(t, err)
	f, err := weftgorgonia.From([]*gorgonia.Node{x}, []*gorgonia.Node{y})
	require.NoError(t, err)
	m := &randomised{Noise: rand.NewPCG(0, seed), Plain: autodiff.Define("plain", nil), Taken: f, Norm: NewBatchNorm(4), Parts: map[string]Layer{}, Scale: map[string]*autodiff.Tensor{"s": Ones(device.Float32, 4).RequireGrad()}}
	for i := range 5 {
		m.Parts[strconv.Itoa(i)] = Sequential{NewDropout(src, 0.25), NewLinear(src, 4, 4), Activation(autodiff.Tanh), &Dropout{P: 0.5}}
	}
	return m
}

func (m *randomised) Forward(x *autodiff.Tensor) *autodiff.Tensor {
	for _, name := range slices.Sorted(maps.Keys(m.Parts)) {
		x = m.Parts[name].Forward(x)
	}
	noise := autodiff.NormalFrom(rand.New(m.Noise), 0.1, x.Shape()...)
	return m.Norm.Forward(autodiff.Mul(m.Taken.Call(autodiff.Add(x, noise)), m.Scale["s"]))
}

func (m *randomised) Params() (ps []*autodiff.Tensor) {
	ps = append(m.Norm.Params(), m.Scale["s"])
	for _, l := range m.Parts {
		ps = append(ps, l.Params()...)
	}
	return ps
}

func TestALayerThatLoadsTheStateOfAnotherGoesOnBitForBitWithItsRandomNumbers(t *testing.T) {
	x := autodiff.RandFrom(rng(3), 8, 4)
	run := func(l Layer, n int) (all [][]float64) {
		for range n {
			y := l.Forward(x)
			g, err := autodiff.Backward(autodiff.Sum(autodiff.Mul(y, y)))
			require.NoError(t, err)
			all = append(all, read(t, y), read(t, g.Of(l.(*randomised).Scale["s"])))
		}
		return all
	}
	a, b := newRandomised(t, 1), newRandomised(t, 2)
	run(a, 3)
	run(b, 1)
	state := maps.Collect(State(a))
	saved := map[string]*autodiff.Tensor{}
	for name, v := range state {
		dtype, shape, data, err := v.Raw()
		require.NoError(t, err)
		saved[name] = autodiff.FromRaw(dtype, shape, data)
	}
	want := run(a, 3)
	scale := b.Scale["s"]
	require.NoError(t, Load(b, saved))
	require.Same(t, scale, b.Scale["s"], "the optimizer has it")
	require.Equal(t, want, run(b, 3))
	require.NoError(t, Load(a, saved))
	require.Equal(t, want, run(a, 3), "back to then")
	for _, name := range []string{"Parts.0.0.Random", "Parts.4.3.Random", "Taken.Random", "Noise.Random", "Parts.2.1.W", "Scale.s", "Norm.RunningVar"} {
		require.Contains(t, saved, name)
	}
	require.Len(t, saved, 5*4+1+2+4)
}

func TestParametersAreTheTensorsThatAnOptimizerStepsEachOnce(t *testing.T) {
	a := newRandomised(t, 1)
	shared := NewLinear(rng(1), 4, 4)
	a.Parts["0"], a.Parts["1"] = shared, shared
	var all []string
	for name, p := range Parameters(a) {
		require.True(t, p.RequiresGrad(), name)
		all = append(all, name)
	}
	require.Equal(t, []string{"Parts.0.W", "Parts.0.B", "Parts.2.1.W", "Parts.2.1.B", "Parts.3.1.W", "Parts.3.1.B", "Parts.4.1.W", "Parts.4.1.B",
		"Scale.s", "Norm.Gamma", "Norm.Beta"}, all)
	require.Contains(t, maps.Collect(State(a)), "Parts.1.W")
	require.NoError(t, Load(a, maps.Collect(State(a))))
	for range Parameters(a) {
		break
	}
}

func TestWhatIsNoStateOfALayerIsRefusedWithTheNamesAndChangesNothing(t *testing.T) {
	l := Sequential{NewLinear(rng(1), 2, 2), NewDropout(rng(2), 0.5), NewBatchNorm(2)}
	good := maps.Collect(State(l))
	before := func() (all [][]float64) {
		for _, x := range State(l) {
			all = append(all, read(t, x))
		}
		return all
	}
	was := before()
	other := maps.Collect(State(Sequential{NewLinear(rng(5), 2, 2), NewDropout(rng(6), 0.5), NewBatchNorm(2)}))
	for why, spoil := range map[string]func(s map[string]*autodiff.Tensor){
		"there is no 0.B, 1.Random":                         func(s map[string]*autodiff.Tensor) { delete(s, "0.B"); delete(s, "1.Random") },
		"the layer has no 3.W, x":                           func(s map[string]*autodiff.Tensor) { s["3.W"], s["x"] = s["0.W"], nil },
		"2.RunningMean is float32(2, 2), and here float32":  func(s map[string]*autodiff.Tensor) { s["2.RunningMean"] = s["0.W"] },
		"2.Gamma is float64(2), and here float32(2)":        func(s map[string]*autodiff.Tensor) { s["2.Gamma"] = Ones(device.Float64, 2) },
		"1.Random is int64(3), and here int64(2)":           func(s map[string]*autodiff.Tensor) { s["1.Random"] = autodiff.New([]int64{1, 2, 3}) },
		"0.W: a nil tensor":                                 func(s map[string]*autodiff.Tensor) { s["0.W"] = nil },
		"there is no 0.B, 0.W, 1.Random, 2.Beta, 2.Gamma, ": func(s map[string]*autodiff.Tensor) { clear(s) },
	} {
		bad := maps.Clone(other)
		spoil(bad)
		err := Load(l, bad)
		require.ErrorIs(t, err, ErrState)
		require.ErrorContains(t, err, why)
		require.ErrorContains(t, err, "state_test.go:")
		require.Equal(t, was, before(), why)
	}
	require.NoError(t, Load(l, other))
	require.NotEqual(t, was, before())
	require.NoError(t, Load(l, good))
}

// shy has a layer where nobody sees it.
type shy struct{ body *Linear }

func (s *shy) Forward(x *autodiff.Tensor) *autodiff.Tensor { return s.body.Forward(x) }
func (s *shy) Params() []*autodiff.Tensor                  { return s.body.Params() }

func TestAParameterThatNoExportedFieldLeadsToIsAnErrorAndNotLeftOut(t *testing.T) {
	l := Sequential{&shy{NewLinear(rng(1), 2, 2)}}
	for _, all := range []map[string]*autodiff.Tensor{maps.Collect(State(l)), maps.Collect(Parameters(l))} {
		require.Len(t, all, 1)
		for _, x := range all {
			require.ErrorIs(t, x.Err(), ErrState)
			require.ErrorContains(t, x.Err(), "parameter 0 of nn.Sequential")
			require.ErrorContains(t, x.Err(), "state_test.go:")
		}
	}
	require.ErrorIs(t, Load(l, nil), ErrState)
	before := l.Params()[0]
	require.ErrorIs(t, To(l, device.NewSim(device.SimConfig{})), ErrState)
	require.Same(t, before, l.Params()[0])
	require.ErrorContains(t, To(nil, device.Host()), "the layer is nil")
}

func TestATensorInAMapMovesToADevice(t *testing.T) {
	m := newRandomised(t, 1)
	sim := device.NewSim(device.SimConfig{})
	require.NoError(t, To(m, sim))
	for _, p := range m.Params() {
		require.Equal(t, sim.ID(), p.Device())
	}
}
