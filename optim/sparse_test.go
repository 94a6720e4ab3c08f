package optim_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/rpc"
)

// sparseTable is the parameter of testdata/sparse.py.
func sparseTable[T device.Float]() *autodiff.Tensor {
	p := make([]T, 12)
	for k := range p {
		p[k] = T(0.3*float64(k/2) - 0.5*float64(k%2))
	}
	return autodiff.New(p, 6, 2).RequireGrad()
}

// sparseGradient is that of testdata/sparse.py in step n.
func sparseGradient[T device.Float](t *testing.T, table *autodiff.Tensor, n int) *autodiff.Tensor {
	p, err := autodiff.Values[T](table)
	require.NoError(t, err)
	var ids []int64
	var values []T
	for k := range n%5 + 1 {
		r := (7*n + k*k) % 6
		ids = append(ids, int64(r))
		for i := range 2 {
			values = append(values, p[2*r+i]-T(0.5-0.25*float64(i))+T(0.2*math.Sin(0.7*float64(n)+float64(k+i))))
		}
	}
	return autodiff.Sparse(6, autodiff.New(ids), autodiff.New(values, len(ids), 2))
}

var sparseRules = map[string]optim.Rule{
	"SGD lr=0.05":                                   optim.SGD{LR: 0.05},
	"SGD lr=0.002 maximize=True":                    optim.SGD{LR: 0.002, Maximize: true},
	"SGD lr=0.05 momentum=0.9":                      optim.SGD{LR: 0.05, Momentum: 0.9},
	"SGD lr=0.05 momentum=0.9 nesterov=True":        optim.SGD{LR: 0.05, Momentum: 0.9, Nesterov: true},
	"SGD lr=0.05 momentum=0.9 dampening=0.3":        optim.SGD{LR: 0.05, Momentum: 0.9, Dampening: 0.3},
	"Adagrad":                                       optim.Adagrad{},
	"Adagrad lr=0.05 maximize=True":                 optim.Adagrad{LR: 0.05, Maximize: true},
	"SparseAdam":                                    optim.Adam{},
	"SparseAdam lr=0.05 betas=(0.8,0.95) eps=0.001": optim.Adam{LR: 0.05, Beta1: 0.8, Beta2: 0.95, Eps: 1e-3},
	"Adagrad lr=0.05 lr_decay=0.1 initial_accumulator_value=0.5 eps=1e-06": optim.Adagrad{LR: 0.05, LRDecay: 0.1, InitialAccumulator: 0.5, Eps: 1e-6},
}

func TestAHundredSparseStepsEqualTorchs(t *testing.T) {
	raw, err := os.ReadFile("testdata/sparse.json")
	require.NoError(t, err)
	var want map[string]map[string][]float64
	require.NoError(t, json.Unmarshal(raw, &want))
	require.Len(t, sparseRules, len(want))
	for name, at := range want {
		t.Run(name, func(t *testing.T) {
			checkSparse[float64](t, sparseRules[name], at, 1e-12)
			checkSparse[float32](t, sparseRules[name], at, 2e-5)
		})
	}
}

func checkSparse[T device.Float](t *testing.T, rule optim.Rule, want map[string][]float64, tolerance float64) {
	table := sparseTable[T]()
	opt, err := optim.New(rule, table)
	require.NoError(t, err)
	for n := 1; n <= 100; n++ {
		require.NoError(t, opt.Step(map[*autodiff.Tensor]*autodiff.Tensor{table: sparseGradient[T](t, table, n)}))
		if w, ok := want[strconv.Itoa(n)]; ok {
			have, err := autodiff.Values[T](table)
			require.NoError(t, err)
			for i := range w {
				require.InDelta(t, w[i], float64(have[i]), tolerance*(1+math.Abs(w[i])), "step %d, number %d", n, i)
			}
		}
	}
}

func TestASparseStepLeavesTheStateOfOtherRowsAlone(t *testing.T) {
	table := sparseTable[float64]()
	opt, err := optim.NewGroups(optim.Named(optim.Adam{}, named([]*autodiff.Tensor{table})))
	require.NoError(t, err)
	step := func(ids ...int64) [][]float64 {
		values := autodiff.Ones(device.Float64, len(ids), 2)
		require.NoError(t, opt.Step(map[*autodiff.Tensor]*autodiff.Tensor{table: autodiff.Sparse(6, autodiff.New(ids), values)}))
		s, err := opt.State()
		require.NoError(t, err)
		var all [][]float64
		for _, x := range []*autodiff.Tensor{table, s.Tensors["a.0.exp_avg"], s.Tensors["a.0.exp_avg_sq"]} {
			v, err := autodiff.Values[float64](x)
			require.NoError(t, err)
			all = append(all, v)
		}
		return all
	}
	first := step(0, 1, 2, 3, 4, 5)
	second := step(4, 1, 4)
	for k := range first {
		for i := range first[k] {
			if r := i / 2; r == 1 || r == 4 {
				require.NotEqual(t, first[k][i], second[k][i])
			} else {
				require.Equal(t, first[k][i], second[k][i], "row %d", r)
			}
		}
	}
}

func TestRulesWithoutSparseStepsSayWhichHaveThem(t *testing.T) {
	table := sparseTable[float64]()
	before, err := autodiff.Values[float64](table)
	require.NoError(t, err)
	for _, rule := range []optim.Rule{
		optim.AdamW{}, optim.Adadelta{}, optim.RMSprop{}, optim.Rprop{}, optim.Adamax{}, optim.Adam{AMSGrad: true}, optim.Adam{WeightDecay: 0.1},
		optim.SGD{LR: 1, WeightDecay: 0.1}, optim.SGD{LR: 1, WeightDecay: 0.1, Momentum: 0.9}, optim.Adagrad{WeightDecay: 0.1},
	} {
		opt, err := optim.New(rule, table)
		require.NoError(t, err)
		grads := map[*autodiff.Tensor]*autodiff.Tensor{table: sparseGradient[float64](t, table, 1)}
		err = opt.Step(grads)
		require.ErrorIs(t, err, optim.ErrSparse, "%T", rule)
		u := rule.Update()
		if u.WeightDecay == 0 && !u.AMSGrad {
			require.ErrorContains(t, err, string(u.Rule)+" takes none; SGD, Adagrad and Adam do")
		}
		now, err := autodiff.Values[float64](table)
		require.NoError(t, err)
		require.Equal(t, before, now)
	}
}

func TestSparseGradientsAreClippedByTheNormOfTheirSum(t *testing.T) {
	table, twin := sparseTable[float64](), sparseTable[float64]()
	sparse := autodiff.Sparse(6, autodiff.New([]int64{1, 1}), autodiff.New([]float64{1, 0, 2, 4}, 2, 2))
	dense := autodiff.Add(sparse, autodiff.Zeros(device.Float64, 6, 2))
	for p, g := range map[*autodiff.Tensor]*autodiff.Tensor{table: sparse, twin: dense} {
		opt, err := optim.New(optim.SGD{LR: 1}, p)
		require.NoError(t, err)
		norm, err := opt.StepClipped(map[*autodiff.Tensor]*autodiff.Tensor{p: g}, 2)
		require.NoError(t, err)
		require.Equal(t, 5.0, norm)
	}
	a, err := autodiff.Values[float64](table)
	require.NoError(t, err)
	b, err := autodiff.Values[float64](twin)
	require.NoError(t, err)
	require.Equal(t, b, a)
}

// Trainers look rows up of a table on a server; its gradients stay sparse and step it there, in
// passes that run at the same time.
func TestAServersTableIsSteppedByTheRowsThatTrainersLookedUp(t *testing.T) {
	const steps = 8
	table := autodiff.Zeros(device.Float64, 100, 1).RequireGrad()
	serve := rpc.Define("table", func(c context.Context, _ struct{}) (optim.Param, error) { return rpc.NewRRef(c, table) })
	look := rpc.Define("look", func(_ context.Context, ids *autodiff.Tensor) (*autodiff.Tensor, error) {
		return autodiff.EmbeddingSparse(table, ids), nil
	})
	ws := rpctest.World(t, rpctest.Net(), 4, append(optim.Functions(), serve, look)...)
	done := make(chan error, 3)
	for _, w := range ws[1:] {
		go func() {
			done <- func() error {
				c := w.Context(t.Context())
				ref, err := serve.Call(c, "worker0", struct{}{})
				if err != nil {
					return err
				}
				defer ref.Release()
				opt, err := optim.NewDistributed(c, optim.SGD{LR: 1}, ref)
				if err != nil {
					return err
				}
				defer opt.Release()
				for range steps {
					if err := w.Pass(c, func(c context.Context) error {
						rows, err := look.Call(c, "worker0", autodiff.New([]int64{int64(w.Rank()), 99, int64(w.Rank())}))
						if err != nil {
							return err
						}
						if err := ctx.Backward(c, autodiff.Sum(rows)); err != nil {
							return err
						}
						return opt.Step(c)
					}); err != nil {
						return err
					}
				}
				return nil
			}()
		}()
	}
	for range 3 {
		require.NoError(t, <-done)
	}
	v, err := autodiff.Values[float64](table)
	require.NoError(t, err)
	for i := range v {
		want := map[int]float64{1: -2 * steps, 2: -2 * steps, 3: -2 * steps, 99: -3 * steps}[i]
		require.Equal(t, want, v[i], fmt.Sprint("row ", i))
	}
}

// BenchmarkEmbeddingStep looks 1024 rows up in a table of 100,000 and steps it.
func BenchmarkEmbeddingStep(b *testing.B) {
	for _, kind := range []string{"dense", "sparse"} {
		for _, rule := range []optim.Rule{optim.SGD{LR: 0.1}, optim.Adam{}} {
			b.Run(fmt.Sprintf("gradient=%s/rule=%v", kind, rule.Update().Rule), func(b *testing.B) {
				src := rand.New(rand.NewPCG(1, 1))
				table := nn.NewEmbedding(src, 100_000, 64)
				table.Sparse = kind == "sparse"
				opt, err := optim.New(rule, table.Table)
				require.NoError(b, err)
				ids := make([]int64, 1024)
				for i := range ids {
					ids[i] = src.Int64N(100_000)
				}
				at := autodiff.New(ids)
				for b.Loop() {
					arena := autodiff.NewArena("step")
					rows := table.Forward(at)
					require.NoError(b, arena.Adopt(rows))
					grads, err := autodiff.Backward(autodiff.Sum(rows))
					require.NoError(b, err)
					require.NoError(b, opt.Step(grads.All()))
					arena.Free()
				}
			})
		}
	}
}
