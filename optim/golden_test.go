package optim_test

import (
	"encoding/json"
	"math"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/optim"
)

// golden is what torch computes; testdata/golden.py makes it, and says what the problem is.
type golden struct {
	Start      [][]float64
	Steps      []int
	Optimizers map[string]struct {
		At    map[string][][]float64 // by step
		Norms []float64              // of clipped runs, at the steps
	}
	Schedules map[string][]float64
}

func readGolden(t *testing.T) (g golden) {
	t.Helper()
	raw, err := os.ReadFile("testdata/golden.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &g))
	return g
}

// gradientAt is the gradient of parameter j with the value p in step n, or nil where it has none.
func gradientAt[T device.Float](p []T, j, n int) []T {
	if j == 1 && n%3 == 0 || j == 2 && n < 5 {
		return nil
	}
	g := make([]T, len(p))
	for i, v := range p {
		x, k := float64(v), float64(j)
		g[i] = T((0.5+0.25*k)*(x-(1-0.5*float64(i))) + 0.3*k*math.Tanh(3*x) + 0.2*math.Sin(0.7*float64(n)+float64(i)))
	}
	return g
}

// problem is the parameters as T.
type problem[T device.Float] struct{ params []*autodiff.Tensor }

func newProblem[T device.Float](start [][]float64) *problem[T] {
	p := &problem[T]{}
	for _, vs := range start {
		data := make([]T, len(vs))
		for i, v := range vs {
			data[i] = T(v)
		}
		p.params = append(p.params, autodiff.New(data).RequireGrad())
	}
	return p
}

func (p *problem[T]) values(t *testing.T) (all [][]T) {
	t.Helper()
	for _, w := range p.params {
		v, err := autodiff.Values[T](w)
		require.NoError(t, err)
		all = append(all, v)
	}
	return all
}

func (p *problem[T]) gradients(t *testing.T, n int) map[*autodiff.Tensor]*autodiff.Tensor {
	grads := map[*autodiff.Tensor]*autodiff.Tensor{}
	for j, v := range p.values(t) {
		if g := gradientAt(v, j, n); g != nil {
			grads[p.params[j]] = autodiff.New(g)
		}
	}
	return grads
}

// close holds values to torch's.
func (p *problem[T]) close(t *testing.T, want [][]float64, tolerance float64) {
	t.Helper()
	for j, vs := range p.values(t) {
		require.Len(t, vs, len(want[j]))
		for i, v := range vs {
			require.InDelta(t, want[j][i], float64(v), tolerance*max(1, math.Abs(want[j][i])), "parameter %d at %d", j, i)
		}
	}
}

// torchs names the rules as golden.py does.
var torchs = map[string]optim.Rule{
	"SGD lr=0.05":                               optim.SGD{LR: 0.05},
	"SGD lr=0.05 weight_decay=0.1":              optim.SGD{LR: 0.05, WeightDecay: 0.1},
	"SGD lr=0.05 maximize=True":                 optim.SGD{LR: 0.05, Maximize: true},
	"SGD lr=0.05 momentum=0.9":                  optim.SGD{LR: 0.05, Momentum: 0.9},
	"SGD lr=0.05 momentum=0.9 weight_decay=0.1": optim.SGD{LR: 0.05, Momentum: 0.9, WeightDecay: 0.1},
	"SGD lr=0.05 momentum=0.9 dampening=0.3":    optim.SGD{LR: 0.05, Momentum: 0.9, Dampening: 0.3},
	"SGD lr=0.05 momentum=0.9 nesterov=True":    optim.SGD{LR: 0.05, Momentum: 0.9, Nesterov: true},
	"Adam":                                      optim.Adam{},
	"Adam lr=0.05 betas=(0.8,0.95) eps=1e-06":   optim.Adam{LR: 0.05, Beta1: 0.8, Beta2: 0.95, Eps: 1e-6},
	"Adam lr=0.05 weight_decay=0.1":             optim.Adam{LR: 0.05, WeightDecay: 0.1},
	"Adam lr=0.05 amsgrad=True":                 optim.Adam{LR: 0.05, AMSGrad: true},
	"Adam lr=0.05 maximize=True":                optim.Adam{LR: 0.05, Maximize: true},
	"AdamW":                                     optim.AdamW{},
	"AdamW lr=0.05 amsgrad=True":                optim.AdamW{LR: 0.05, AMSGrad: true},
	"Adagrad":                                   optim.Adagrad{},
	"Adagrad lr=0.05 lr_decay=0.1":              optim.Adagrad{LR: 0.05, LRDecay: 0.1},
	"Adagrad lr=0.05 weight_decay=0.1":          optim.Adagrad{LR: 0.05, WeightDecay: 0.1},
	"Adadelta":                                  optim.Adadelta{},
	"Adadelta lr=0.5 rho=0.95 eps=0.0001":       optim.Adadelta{LR: 0.5, Rho: 0.95, Eps: 1e-4},
	"Adadelta weight_decay=0.1":                 optim.Adadelta{WeightDecay: 0.1},
	"Adadelta weight_decay=0.1 maximize=True":   optim.Adadelta{WeightDecay: 0.1, Maximize: true},
	"RMSprop":                                    optim.RMSprop{},
	"RMSprop lr=0.05 alpha=0.9 eps=1e-06":        optim.RMSprop{LR: 0.05, Alpha: 0.9, Eps: 1e-6},
	"RMSprop weight_decay=0.1":                   optim.RMSprop{WeightDecay: 0.1},
	"RMSprop centered=True":                      optim.RMSprop{Centered: true},
	"RMSprop momentum=0.9":                       optim.RMSprop{Momentum: 0.9},
	"Rprop":                                      optim.Rprop{},
	"Rprop step_sizes=(1e-06,0.1) maximize=True": optim.Rprop{MaxStep: 0.1, Maximize: true},
	"Adamax": optim.Adamax{},
	"Adamax lr=0.05 betas=(0.8,0.95) eps=1e-06":                                                 optim.Adamax{LR: 0.05, Beta1: 0.8, Beta2: 0.95, Eps: 1e-6},
	"Adamax lr=0.05 weight_decay=0.1":                                                           optim.Adamax{LR: 0.05, WeightDecay: 0.1},
	"Adamax lr=0.05 weight_decay=0.1 maximize=True":                                             optim.Adamax{LR: 0.05, WeightDecay: 0.1, Maximize: true},
	"Rprop lr=0.05 etas=(0.6,1.1) step_sizes=(0.001,0.2)":                                       optim.Rprop{LR: 0.05, EtaMinus: 0.6, EtaPlus: 1.1, MinStep: 1e-3, MaxStep: 0.2},
	"SGD lr=0.01 momentum=0.9 nesterov=True weight_decay=0.1 maximize=True":                     optim.SGD{LR: 0.01, Momentum: 0.9, Nesterov: true, WeightDecay: 0.1, Maximize: true},
	"Adam lr=0.05 amsgrad=True weight_decay=0.1 maximize=True":                                  optim.Adam{LR: 0.05, AMSGrad: true, WeightDecay: 0.1, Maximize: true},
	"AdamW lr=0.05 betas=(0.8,0.95) eps=1e-06 weight_decay=0.1":                                 optim.AdamW{LR: 0.05, Beta1: 0.8, Beta2: 0.95, Eps: 1e-6, WeightDecay: 0.1},
	"AdamW lr=0.05 weight_decay=0.1 amsgrad=True maximize=True":                                 optim.AdamW{LR: 0.05, WeightDecay: 0.1, AMSGrad: true, Maximize: true},
	"Adagrad lr=0.05 initial_accumulator_value=0.5 eps=1e-06":                                   optim.Adagrad{LR: 0.05, InitialAccumulator: 0.5, Eps: 1e-6},
	"Adagrad lr=0.05 lr_decay=0.1 weight_decay=0.1 initial_accumulator_value=0.5 maximize=True": optim.Adagrad{LR: 0.05, LRDecay: 0.1, WeightDecay: 0.1, InitialAccumulator: 0.5, Maximize: true},
	"RMSprop lr=0.001 centered=True momentum=0.9 weight_decay=0.1 maximize=True":                optim.RMSprop{LR: 0.001, Centered: true, Momentum: 0.9, WeightDecay: 0.1, Maximize: true},
}

// follow makes the golden steps and compares after each of those that torch's run tells of.
func follow[T device.Float](t *testing.T, name string, step func(p *problem[T], n int) error, newOptimizer func(p *problem[T])) {
	t.Helper()
	g, tolerance := readGolden(t), 1e-4
	if device.DtypeOf[T]() == device.Float64 {
		tolerance = 1e-9 // what is asked for is 1e-6
	}
	p := newProblem[T](g.Start)
	newOptimizer(p)
	for n := 1; n <= g.Steps[len(g.Steps)-1]; n++ {
		require.NoError(t, step(p, n))
		if want := g.Optimizers[name].At[strconv.Itoa(n)]; want != nil {
			p.close(t, want, tolerance)
		}
	}
}

// followLocal is follow for an optimizer that make makes.
func followLocal[T device.Float](t *testing.T, name string, make func(params []*autodiff.Tensor) (*optim.Local, error)) {
	t.Helper()
	var o *optim.Local
	follow(t, name, func(p *problem[T], n int) error { return o.Step(p.gradients(t, n)) }, func(p *problem[T]) {
		var err error
		o, err = make(p.params)
		require.NoError(t, err)
	})
}

func TestAHundredStepsOfEveryRuleAndOptionEqualTorchs(t *testing.T) {
	others := map[string]bool{"groups": true, "scheduled": true, "clipped 0.5": true, "clipped 100.0": true}
	require.Len(t, readGolden(t).Optimizers, len(torchs)+len(others))
	for name, rule := range torchs {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, readGolden(t).Optimizers, name)
			make := func(ps []*autodiff.Tensor) (*optim.Local, error) { return optim.New(rule, ps...) }
			followLocal[float64](t, name, make)
			followLocal[float32](t, name, make)
		})
	}
}

func TestGroupsOfParametersAreSteppedByRulesOfTheirOwnAsTorchs(t *testing.T) {
	followLocal[float64](t, "groups", func(ps []*autodiff.Tensor) (*optim.Local, error) {
		return optim.NewGroups(
			optim.Group[*autodiff.Tensor]{Rule: optim.SGD{LR: 0.05, Momentum: 0.9, WeightDecay: 0.1}, Params: ps[:2]},
			optim.Group[*autodiff.Tensor]{Rule: optim.SGD{LR: 0.01, Momentum: 0.9}, Params: ps[2:]},
		)
	})
}

func TestStepsUnderAScheduleEqualTorchs(t *testing.T) {
	var o *optim.Local
	follow(t, "scheduled", func(p *problem[float64], n int) error {
		defer o.Advance()
		return o.Step(p.gradients(t, n))
	}, func(p *problem[float64]) {
		var err error
		o, err = optim.New(optim.Adam{LR: 0.05}, p.params...)
		require.NoError(t, err)
		o.SetSchedule(optim.Cosine(50, 0.1))
	})
}

func TestClippedStepsAndTheirNormsEqualTorchs(t *testing.T) {
	g := readGolden(t)
	for name, limit := range map[string]float64{"clipped 0.5": 0.5, "clipped 100.0": 100} {
		var o *optim.Local
		var norms []float64
		follow(t, name, func(p *problem[float64], n int) error {
			norm, err := o.StepClipped(p.gradients(t, n), limit)
			for _, at := range g.Steps {
				if at == n {
					norms = append(norms, norm)
				}
			}
			return err
		}, func(p *problem[float64]) {
			var err error
			o, err = optim.New(optim.SGD{LR: 0.05, Momentum: 0.9}, p.params...)
			require.NoError(t, err)
		})
		require.InDeltaSlice(t, g.Optimizers[name].Norms, norms, 1e-9)
	}
}

func TestSchedulesEqualTorchs(t *testing.T) {
	warm := optim.LinearWarmup(0.1, 10)
	ours := map[string]optim.Schedule{
		"StepLR": optim.StepLR(7, 0.3), "MultiStep": optim.MultiStep(0.3, 5, 20, 12), "Exponential": optim.Exponential(0.9),
		"Polynomial": optim.Polynomial(30, 2), "LinearWarmup": optim.LinearWarmup(0.1, 12), "Cosine": optim.Cosine(25, 0.1),
		"CosineRestarts": optim.CosineRestarts(5, 2, 0.1), "OneCycle": optim.OneCycle{Total: 40}.Schedule(),
		"OneCycle linear":       optim.OneCycle{Total: 40, Rise: 0.4, Divide: 10, FinalDiv: 100, Linear: true}.Schedule(),
		"OneCycle three phases": optim.OneCycle{Total: 40, ThreePhase: true}.Schedule(),
		"Then":                  warm.Then(10, optim.Exponential(0.9)), "Times": warm.Times(optim.Exponential(0.9)),
	}
	torchs := readGolden(t).Schedules
	require.Len(t, ours, len(torchs))
	for name, want := range torchs {
		for n, rate := range want {
			require.InDelta(t, rate, ours[name](n), 1e-12, "%s at %d", name, n)
		}
	}
}

func TestSchedulesOfNonsenseAreNumbers(t *testing.T) {
	for _, s := range []optim.Schedule{
		optim.StepLR(0, 0.5), optim.MultiStep(0.5), optim.Polynomial(0, 1), optim.LinearWarmup(0, -1), optim.Cosine(0, 0.5),
		optim.CosineRestarts(0, 0, 0), optim.OneCycle{}.Schedule(), optim.OneCycle{Total: 1}.Schedule(), optim.OneCycle{Total: 3, ThreePhase: true}.Schedule(),
	} {
		for n := range 5 {
			require.False(t, math.IsNaN(s(n)) || math.IsInf(s(n), 0))
		}
	}
}
