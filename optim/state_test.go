package optim_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/optim"
)

// train makes steps first to last of the golden problem under a schedule.
func train(t *testing.T, p *problem[float64], o *optim.Local, first, last int) {
	t.Helper()
	for n := first; n <= last; n++ {
		require.NoError(t, o.Step(p.gradients(t, n)))
		o.Advance()
	}
}

func begin(t *testing.T, rule optim.Rule, start [][]float64) (*problem[float64], *optim.Local) {
	t.Helper()
	p := newProblem[float64](start)
	o, err := optim.New(rule, p.params...)
	require.NoError(t, err)
	o.SetSchedule(optim.Cosine(30, 0.1))
	return p, o
}

// throughJSON is a state as one that was written and read.
func throughJSON(t *testing.T, s optim.State) optim.State {
	t.Helper()
	raw, err := json.Marshal(s.Meta)
	require.NoError(t, err)
	read := optim.State{Tensors: map[string]*autodiff.Tensor{}}
	require.NoError(t, json.Unmarshal(raw, &read.Meta))
	for name, x := range s.Tensors {
		v, err := autodiff.Values[float64](x)
		require.NoError(t, err)
		read.Tensors[name] = autodiff.New(v, x.Shape()...)
	}
	return read
}

func TestTrainingResumedFromAStateEqualsTrainingNotInterruptedBitForBit(t *testing.T) {
	start := readGolden(t).Start
	for name, rule := range torchs {
		for _, cut := range []int{0, 1, 3, 7, 20} { // at 3 the last parameter has not been stepped yet
			p, o := begin(t, rule, start)
			train(t, p, o, 1, cut)
			require.NoError(t, o.SetLR(0.02))
			values := p.values(t)
			state, err := o.State()
			require.NoError(t, err)
			train(t, p, o, cut+1, 25) // what was taken stays as it is

			q, r := begin(t, rule, values)
			require.NoError(t, r.Load(throughJSON(t, state)))
			train(t, q, r, cut+1, 25)
			require.Equal(t, p.values(t), q.values(t), "%s, cut at %d", name, cut)
			require.Equal(t, o.LR(), r.LR())
			again, err := r.State()
			require.NoError(t, err)
			last, err := o.State()
			require.NoError(t, err)
			require.Equal(t, throughJSON(t, last).Meta, again.Meta)
		}
	}
}

func TestALoadedStateIsNotWrittenToAndMayBeLoadedTwice(t *testing.T) {
	start := readGolden(t).Start
	p, o := begin(t, optim.Adam{}, start)
	train(t, p, o, 1, 5)
	state, err := o.State()
	require.NoError(t, err)
	before := throughJSON(t, state)
	values := p.values(t)
	var ends [2][][]float64
	for i := range ends {
		q, r := begin(t, optim.Adam{}, values)
		require.NoError(t, r.Load(state))
		train(t, q, r, 6, 9)
		ends[i] = q.values(t)
	}
	require.Equal(t, ends[0], ends[1])
	after := throughJSON(t, state)
	for name, x := range before.Tensors {
		want, _ := autodiff.Values[float64](x)
		got, _ := autodiff.Values[float64](after.Tensors[name])
		require.Equal(t, want, got, name)
	}
}

func TestTheTensorsOfAStateHaveTorchsNames(t *testing.T) {
	for want, rule := range map[string]optim.Rule{
		"momentum_buffer": optim.SGD{LR: 1, Momentum: 0.5}, "": optim.SGD{LR: 1}, "exp_avg exp_avg_sq": optim.AdamW{},
		"exp_avg exp_avg_sq max_exp_avg_sq": optim.Adam{AMSGrad: true}, "sum": optim.Adagrad{}, "square_avg acc_delta": optim.Adadelta{},
		"square_avg": optim.RMSprop{}, "square_avg momentum_buffer grad_avg": optim.RMSprop{Centered: true, Momentum: 0.5},
		"prev step_size": optim.Rprop{}, "exp_avg exp_inf": optim.Adamax{},
	} {
		p, o := begin(t, rule, [][]float64{{1, 2}, {3}, {4}})
		train(t, p, o, 1, 1)
		s, err := o.State()
		require.NoError(t, err)
		names := strings.Fields(want)
		require.Len(t, s.Tensors, 2*len(names), "the last parameter was not stepped")
		for _, name := range names {
			require.Contains(t, s.Tensors, "0."+name)
			require.Equal(t, device.Shape{1}, s.Tensors["1."+name].Shape())
		}
	}
}

func TestAStateThatDoesNotFitIsRefusedAndChangesNothing(t *testing.T) {
	start := readGolden(t).Start
	rule := optim.Adam{LR: 0.1}
	p, o := begin(t, rule, start)
	train(t, p, o, 1, 6)
	good, err := o.State()
	require.NoError(t, err)
	arena := autodiff.NewArena("pass 7")
	defer arena.Free()
	for why, spoil := range map[string]func(s *optim.State){
		"it is of 0 groups":                                                     func(s *optim.State) { *s = optim.State{} },
		"group 0 has 2 parameters; there are 3":                                 func(s *optim.State) { s.Meta.Groups[0].Params = 2 },
		"is stepped by AdamW":                                                   func(s *optim.State) { s.Meta.Groups[0].Rule = optim.AdamW{}.Update() },
		"here it is Adam(learning rate=0.1, ":                                   func(s *optim.State) { s.Meta.Groups[0].Rule.WeightDecay = 1 },
		"learning rate -1":                                                      func(s *optim.State) { s.Meta.Groups[0].Rule.LR = -1 },
		"counts the steps of 2 parameters":                                      func(s *optim.State) { s.Meta.Steps = s.Meta.Steps[:2] },
		"parameter 1 has made -1 steps":                                         func(s *optim.State) { s.Meta.Steps[1] = -1 },
		"the schedule is at -1":                                                 func(s *optim.State) { s.Meta.Advanced = -1 },
		"1 tensors are missing, such as 1.exp_a":                                func(s *optim.State) { delete(s.Tensors, "1.exp_avg_sq") },
		"it has 7 tensors where its steps need 6":                               func(s *optim.State) { s.Tensors["9.exp_avg"] = s.Tensors["0.exp_avg"] },
		"it has 6 tensors where its steps need 4":                               func(s *optim.State) { s.Meta.Steps[2] = 0 },
		"exp_avg of parameter 2: it is float64(2); the parameter is float64(1)": func(s *optim.State) { s.Tensors["2.exp_avg"] = s.Tensors["1.exp_avg"] },
		"it is float32(1)":                                                      func(s *optim.State) { s.Tensors["2.exp_avg"] = autodiff.New([]float32{1}) },
		"belongs to pass 7": func(s *optim.State) {
			x := autodiff.New([]float64{1})
			require.NoError(t, arena.Adopt(x))
			s.Tensors["2.exp_avg"] = x
		},
		"a nil tensor": func(s *optim.State) { s.Tensors["2.exp_avg"] = nil },
	} {
		q, r := begin(t, rule, start)
		train(t, q, r, 1, 2)
		before, err := r.State()
		require.NoError(t, err)
		bad := optim.State{Tensors: maps.Clone(good.Tensors), Meta: throughJSON(t, good).Meta}
		spoil(&bad)
		err = r.Load(bad)
		require.ErrorIs(t, err, optim.ErrState, why)
		require.ErrorContains(t, err, why)
		after, err := r.State()
		require.NoError(t, err)
		require.Equal(t, before.Meta, after.Meta, why)
		require.NoError(t, r.Load(good), why)
	}
}

func TestAStateMovesToTheDeviceOfItsParameter(t *testing.T) {
	start := []float64{1, 2, 3}
	sim := device.NewSim(device.SimConfig{Index: 1})
	host := autodiff.New(start).RequireGrad()
	far := autodiff.To(autodiff.New(start), sim).RequireGrad()
	g := autodiff.New([]float64{0.1, -0.2, 0.3})
	type grads = map[*autodiff.Tensor]*autodiff.Tensor
	a, err := optim.New(optim.Adam{}, host)
	require.NoError(t, err)
	b, err := optim.New(optim.Adam{}, far)
	require.NoError(t, err)
	require.NoError(t, a.Step(grads{host: g}))
	require.NoError(t, b.Step(grads{far: autodiff.To(g, sim)}))
	s, err := b.State()
	require.NoError(t, err)
	require.Equal(t, sim.ID(), s.Tensors["0.exp_avg"].Device())
	require.NoError(t, a.Load(s))
	require.NoError(t, a.Step(grads{host: g}))
	require.NoError(t, b.Load(s))
	require.NoError(t, b.Step(grads{far: autodiff.To(g, sim)}))
	want, err := autodiff.Values[float64](far)
	require.NoError(t, err)
	got, err := autodiff.Values[float64](host)
	require.NoError(t, err)
	require.Equal(t, want, got)
	norm, err := b.GradNorm(grads{far: autodiff.To(g, sim)})
	require.NoError(t, err)
	require.InDelta(t, 0.374165738677394, norm, 1e-12)
}
