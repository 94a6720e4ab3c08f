package optim_test

import (
	"encoding/json"
	"iter"
	"maps"
	"math"
	"strconv"
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
	o, err := optim.NewGroups(optim.Named(rule, named(p.params)))
	require.NoError(t, err)
	o.SetSchedule(optim.Cosine(30, 0.1))
	return p, o
}

// named calls parameters a.0, a.1, …
func named[P any](params []P) iter.Seq2[string, P] {
	return func(yield func(string, P) bool) {
		for i, p := range params {
			if !yield("a."+strconv.Itoa(i), p) {
				return
			}
		}
	}
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

// numbersOf are the tensors of a state.
func numbersOf(t *testing.T, s optim.State) map[string][]float64 {
	t.Helper()
	all := map[string][]float64{}
	for name, x := range s.Tensors {
		var err error
		all[name], err = autodiff.Values[float64](x)
		require.NoError(t, err, name)
	}
	return all
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
	before := numbersOf(t, state)
	values := p.values(t)
	var ends [2][][]float64
	for i := range ends {
		q, r := begin(t, optim.Adam{}, values)
		require.NoError(t, r.Load(state))
		train(t, q, r, 6, 9)
		ends[i] = q.values(t)
	}
	require.Equal(t, ends[0], ends[1])
	require.Equal(t, before, numbersOf(t, state))
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
			require.Contains(t, s.Tensors, "a.0."+name)
			require.Equal(t, device.Shape{1}, s.Tensors["a.1."+name].Shape())
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
	arena := autodiff.NewPassArena("7", nil)
	defer arena.Free()
	for why, spoil := range map[string]func(s *optim.State){
		"it is of 0 groups; there are 1":            func(s *optim.State) { *s = optim.State{} },
		"it lacks the parameters a.0, a.1":          func(s *optim.State) { s.Meta.Groups[0].Steps = map[string]int{"a.2": 0}; clear(s.Tensors) },
		"it has parameters that are not here: b, c": func(s *optim.State) { s.Meta.Groups[0].Steps["b"], s.Meta.Groups[0].Steps["c"] = 1, 0 },
		"parameter \"a.1\" is in its group 1, and here in group 0": func(s *optim.State) {
			delete(s.Meta.Groups[0].Steps, "a.1")
			s.Meta.Groups = append(s.Meta.Groups, optim.GroupMeta{Rule: rule.Update(), Steps: map[string]int{"a.1": 6}})
		},
		"parameter \"a.1\" is in its groups 0 and 1": func(s *optim.State) {
			s.Meta.Groups = append(s.Meta.Groups, optim.GroupMeta{Rule: rule.Update(), Steps: map[string]int{"a.1": 6}})
		},
		"it names no parameters":                                              func(s *optim.State) { s.Meta.Groups[0].Steps = nil },
		"is stepped by AdamW":                                                 func(s *optim.State) { s.Meta.Groups[0].Rule = optim.AdamW{}.Update() },
		"here it is Adam(learning rate=0.1, ":                                 func(s *optim.State) { s.Meta.Groups[0].Rule.WeightDecay = 1 },
		"learning rate -1":                                                    func(s *optim.State) { s.Meta.Groups[0].Rule.LR = -1 },
		"parameter \"a.1\" has made -1 steps":                                 func(s *optim.State) { s.Meta.Groups[0].Steps["a.1"] = -1 },
		"the schedule is at -1":                                               func(s *optim.State) { s.Meta.Advanced = -1 },
		"it lacks the tensors a.0.exp_avg, a.1.exp_avg_sq":                    func(s *optim.State) { delete(s.Tensors, "a.1.exp_avg_sq"); delete(s.Tensors, "a.0.exp_avg") },
		"it has tensors that no parameter needs: 9.exp_avg, a.0.sum":          func(s *optim.State) { s.Tensors["9.exp_avg"], s.Tensors["a.0.sum"] = s.Tensors["a.0.exp_avg"], nil },
		"it has tensors that no parameter needs: a.2.exp_avg, a.2.exp_avg_sq": func(s *optim.State) { s.Meta.Groups[0].Steps["a.2"] = 0 },
		"a.2.exp_avg: it is float64(2); the parameter is float64(1)":          func(s *optim.State) { s.Tensors["a.2.exp_avg"] = s.Tensors["a.1.exp_avg"] },
		"it is float32(1)":                                                    func(s *optim.State) { s.Tensors["a.2.exp_avg"] = autodiff.New([]float32{1}) },
		"belongs to pass 7": func(s *optim.State) {
			x := autodiff.New([]float64{1})
			require.NoError(t, arena.Adopt(x))
			s.Tensors["a.2.exp_avg"] = x
		},
		"a nil tensor": func(s *optim.State) { s.Tensors["a.2.exp_avg"] = nil },
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
		require.ErrorContains(t, err, "state_test.go:")
		after, err := r.State()
		require.NoError(t, err)
		require.Equal(t, before.Meta, after.Meta, why)
		require.Equal(t, numbersOf(t, before), numbersOf(t, after), why)
		require.NoError(t, r.Load(good), why)
	}
}

// Go gives the parameters of a map in another order each time; and all three have one shape.
func TestTheStateOfParametersFromAMapGoesByTheirNames(t *testing.T) {
	begin := func(values map[string]float64) (map[string]*autodiff.Tensor, *optim.Local) {
		params := map[string]*autodiff.Tensor{}
		for name, v := range values {
			params[name] = leaf(v)
		}
		o, err := optim.NewGroups(optim.Named(optim.Adam{LR: 0.1}, maps.All(params)))
		require.NoError(t, err)
		return params, o
	}
	train := func(params map[string]*autodiff.Tensor, o *optim.Local, from, to int) map[string]float64 {
		values := map[string]float64{}
		for n := from; n < to; n++ {
			grads := map[*autodiff.Tensor]*autodiff.Tensor{}
			for name, p := range params {
				grads[p] = autodiff.New([]float64{math.Sin(float64(n) * float64(name[0]))})
			}
			_, err := o.StepClipped(grads, 0.1) // the norm is a sum over all, in one order
			require.NoError(t, err)
		}
		for name, p := range params {
			values[name] = number(t, p)
		}
		return values
	}
	shuffled := func(yield func(string, int) bool) { _ = yield("c", 3) && yield("a", 1) && yield("b", 2) }
	g := optim.Named(optim.Adam{}, shuffled)
	require.Equal(t, []string{"a", "b", "c"}, g.Names)
	require.Equal(t, []int{1, 2, 3}, g.Params)
	for range 20 {
		params, o := begin(map[string]float64{"a": 1, "b": 2, "c": 3})
		middle := train(params, o, 0, 5)
		state, err := o.State()
		require.NoError(t, err)
		end := train(params, o, 5, 9)
		again, r := begin(middle)
		require.NoError(t, r.Load(throughJSON(t, state)))
		require.Equal(t, end, train(again, r, 5, 9))
	}
}

func TestParametersNeedNamesOfTheirOwnForAStateThatIsSaved(t *testing.T) {
	o, err := optim.New(optim.Adam{}, leaf(1))
	require.NoError(t, err)
	_, err = o.State()
	for _, err := range []error{err, o.Load(optim.State{})} {
		require.ErrorIs(t, err, optim.ErrState)
		require.ErrorContains(t, err, "parameter 0 has no name")
		require.ErrorContains(t, err, "optim.Named(rule, nn.Parameters(model))")
		require.ErrorContains(t, err, "state_test.go:")
	}
	a, b := leaf(1), leaf(1)
	for why, groups := range map[string][]optim.Group[*autodiff.Tensor]{
		"group 1 has 1 names for 2 parameters":          {{Rule: optim.Adam{}}, {Rule: optim.Adam{}, Params: []*autodiff.Tensor{a, b}, Names: []string{"a"}}},
		`two parameters are called "a", in group 0 and`: {optim.Named(optim.Adam{}, maps.All(map[string]*autodiff.Tensor{"a": a})), optim.Named(optim.Adam{}, maps.All(map[string]*autodiff.Tensor{"a": b}))},
		"the name of parameter 1 of group 0 is empty":   {{Rule: optim.Adam{}, Params: []*autodiff.Tensor{a, b}, Names: []string{"a", ""}}},
	} {
		_, err := optim.NewGroups(groups...)
		require.ErrorIs(t, err, optim.ErrParameters)
		require.ErrorContains(t, err, why)
	}
	o, err = optim.NewGroups(optim.Group[*autodiff.Tensor]{Rule: optim.SGD{LR: 1}, Params: []*autodiff.Tensor{a}, Names: []string{"2.W"}})
	require.NoError(t, err)
	require.ErrorContains(t, o.Step(map[*autodiff.Tensor]*autodiff.Tensor{a: autodiff.New([]float64{1, 2})}), `parameter "2.W"`)
}

// What an older Weft wrote says nowhere which parameter was which.
func TestAStateThatWasSavedByNumberIsRefusedAndTheErrorSaysSo(t *testing.T) {
	_, o := begin(t, optim.Adam{}, [][]float64{{1}, {2}})
	var old optim.State
	require.NoError(t, json.Unmarshal([]byte(`{"Groups":[{"Rule":{"Rule":"Adam","LR":0.001,"Beta1":0.9,"Beta2":0.999,"Eps":1e-8,"Scale":1},"Params":2}],"Steps":[1,0],"Advanced":1}`), &old.Meta))
	old.Tensors = map[string]*autodiff.Tensor{"0.exp_avg": autodiff.New([]float64{1}), "0.exp_avg_sq": autodiff.New([]float64{1})}
	err := o.Load(old)
	require.ErrorIs(t, err, optim.ErrState)
	require.ErrorContains(t, err, `if an older Weft saved it by their numbers ("3.exp_avg"), see State`)
	old.Meta.Groups[0].Steps = map[string]int{"a.0": 1, "a.1": 0} // what its documentation says
	old.Tensors = map[string]*autodiff.Tensor{"a.0.exp_avg": old.Tensors["0.exp_avg"], "a.0.exp_avg_sq": old.Tensors["0.exp_avg_sq"]}
	require.NoError(t, o.Load(old))
}

func TestAllThatDoesNotFitIsInOneErrorWhichListsAFewNames(t *testing.T) {
	params, was := map[string]*autodiff.Tensor{}, map[string]*autodiff.Tensor{}
	for i := range 20 {
		params[strconv.Itoa(100+i)], was["x"+strconv.Itoa(100+i)] = leaf(1), leaf(1)
	}
	params["w"], was["w"], params["v"], was["v"] = leaf(1), leaf(1, 2), leaf(1), leaf(1)
	o, err := optim.NewGroups(optim.Named(optim.Adam{}, maps.All(params)))
	require.NoError(t, err)
	old, err := optim.NewGroups(optim.Named(optim.Adam{LR: 1}, maps.All(was)))
	require.NoError(t, err)
	require.NoError(t, old.Step(map[*autodiff.Tensor]*autodiff.Tensor{was["w"]: autodiff.New([]float64{1, 1}), was["v"]: autodiff.New([]float64{1})}))
	s, err := old.State()
	require.NoError(t, err)
	delete(s.Tensors, "v.exp_avg")
	err = o.Load(s)
	for _, part := range []string{
		"it lacks the parameters 100, 101, 102, 103, 104, 105, 106, 107 and 12 more", "not here: x100, x101, x102, x103, x104, x105, x106, x107 and 12 more",
		"w.exp_avg: it is float64(2); the parameter is float64(1)", "w.exp_avg_sq: it is", "it lacks the tensors v.exp_avg",
	} {
		require.ErrorContains(t, err, part)
	}
}

func TestAStateMovesToTheDeviceOfItsParameter(t *testing.T) {
	start := []float64{1, 2, 3}
	sim := device.NewSim(device.SimConfig{Index: 1})
	host := autodiff.New(start).RequireGrad()
	far := autodiff.To(autodiff.New(start), sim).RequireGrad()
	g := autodiff.New([]float64{0.1, -0.2, 0.3})
	type grads = map[*autodiff.Tensor]*autodiff.Tensor
	a, err := optim.NewGroups(optim.Named(optim.Adam{}, named([]*autodiff.Tensor{host})))
	require.NoError(t, err)
	b, err := optim.NewGroups(optim.Named(optim.Adam{}, named([]*autodiff.Tensor{far})))
	require.NoError(t, err)
	require.NoError(t, a.Step(grads{host: g}))
	require.NoError(t, b.Step(grads{far: autodiff.To(g, sim)}))
	s, err := b.State()
	require.NoError(t, err)
	require.Equal(t, sim.ID(), s.Tensors["a.0.exp_avg"].Device())
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
