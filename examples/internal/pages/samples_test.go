package pages

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/weft-project/weft/autodiff"
	weftgorgonia "github.com/weft-project/weft/autodiff/gorgonia"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/collective/tensors"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/rpc"
)

type Pair struct{ A, B *autodiff.Tensor }

var Add = rpc.Define("add", func(c context.Context, in Pair) (*autodiff.Tensor, error) {
	return autodiff.Add(in.A, in.B), nil
})

// step uses what worker1 computes as if it were local.
func step(c context.Context, w *rpc.Worker, opt *optim.Distributed, t1, t2, t4 *autodiff.Tensor) error {
	return w.Pass(c, func(c context.Context) error { // all memory of the pass is freed with it
		t3, err := Add.Call(c, "worker1", Pair{t1, t2}) // runs on the other worker
		if err != nil {
			return err
		}
		if err := ctx.Backward(c, autodiff.Sum(autodiff.Mul(t3, t4))); err != nil { // and back
			return err
		}
		return opt.Step(c) // on every worker that owns a parameter
	})
}

func TestTheREADMEsStepMovesParametersByTheirGradients(t *testing.T) {
	w := rpctest.World(t, rpctest.Net(), 2, append(optim.Functions(), Add)...)[0]
	c := w.Context(t.Context())
	t1, t2, t4 := autodiff.New([]float32{1, 2}, 2), autodiff.New([]float32{3, 4}, 2), autodiff.New([]float32{5, 6}, 2).RequireGrad()
	mine, err := rpc.NewRRef(c, t4)
	require.NoError(t, err)
	opt, err := optim.NewDistributed(c, optim.SGD{LR: 1}, mine)
	require.NoError(t, err)
	require.NoError(t, step(c, w, opt, t1, t2, t4))
	moved, err := autodiff.Values[float32](t4)
	require.NoError(t, err)
	require.Equal(t, []float32{5 - (1 + 3), 6 - (2 + 4)}, moved)
	mine.Release()
}

// oneStep is the sample of docs/gorgonia.md, whose errors stand for themselves there.
func oneStep(t *testing.T, x, y, w1, w2, loss *gorgonia.Node, xs, ys *autodiff.Tensor) {
	noError := func(err error) { require.NoError(t, err) }
	model, err := weftgorgonia.From([]*gorgonia.Node{x, y, w1, w2}, []*gorgonia.Node{loss}) // inputs, outputs
	noError(err)
	params, err := weftgorgonia.FromParams(w1, w2) // with the values they have there
	noError(err)
	grads, err := autodiff.Backward(model.Call(xs, ys, params[0], params[1])) // or ctx.Backward, over workers
	noError(err)
	opt, err := optim.New(optim.SGD{LR: 1}, params...)
	noError(err)
	noError(opt.Step(grads.All()))
	err = weftgorgonia.ToParams([]*gorgonia.Node{w1, w2}, params) // and back, after training
	noError(err)
}

func TestAGorgoniaModelIsTrainedAndGoesBack(t *testing.T) {
	g := gorgonia.NewGraph()
	scalar := func(name string, v float64) *gorgonia.Node {
		return gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithShape(1, 1), gorgonia.WithName(name),
			gorgonia.WithValue(tensor.New(tensor.WithShape(1, 1), tensor.WithBacking([]float64{v}))))
	}
	x, y, w1, w2 := scalar("x", 0), scalar("y", 0), scalar("w1", 2), scalar("w2", 3)
	off := gorgonia.Must(gorgonia.Sub(gorgonia.Must(gorgonia.Mul(gorgonia.Must(gorgonia.Mul(x, w1)), w2)), y))
	loss := gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.Square(off))))
	oneStep(t, x, y, w1, w2, loss, autodiff.New([]float64{1}, 1, 1), autodiff.New([]float64{5}, 1, 1))
	require.Equal(t, []float64{2 - 2*1*3}, w1.Value().Data()) // (x·w1·w2 − y)² at 1
	require.Equal(t, []float64{3 - 2*1*2}, w2.Value().Data())
}

func serveMetrics(w *rpc.Worker) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(w.Metrics())
	http.Handle("/metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
}

func TestAWorkersMetricsAreServed(t *testing.T) {
	serveMetrics(rpctest.World(t, rpctest.Net(), 1)[0])
	answer := httptest.NewRecorder()
	http.DefaultServeMux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, answer.Code)
	require.Contains(t, answer.Body.String(), "weft_rpc_")
}

var MLP = autodiff.Define("mlp", func(g *autodiff.Graph, x, w1, b1, w2, b2 *gorgonia.Node) *gorgonia.Node {
	return g.Linear(g.GELU(g.Linear(x, w1, b1)), w2, b2)
})

func TestADefinedFunctionIsCompiled(t *testing.T) {
	ones := func(shape ...int) *autodiff.Tensor { return nn.Ones(device.Float32, shape...) }
	y := MLP.Call(ones(1, 2), ones(2, 3), ones(3), ones(3, 1), ones(1))
	got, err := autodiff.Values[float32](y)
	require.NoError(t, err)
	require.InDelta(t, 1+3*3*0.99865, got[0], 1e-3) // GELU(3) = 3·Φ(3)
}

func contrast(c context.Context, g *collective.Group, mine *autodiff.Tensor) error {
	all := tensors.AllGather(c, g, mine, 0) // the rows of all members, as many as each has
	loss := autodiff.Sum(autodiff.MatMul(mine, autodiff.Transpose(all)))
	return ctx.Backward(c, loss) // on each member; mine has gradients of the losses of all
}

func spread(c context.Context, g *collective.Group, x, w1, w2 *autodiff.Tensor) *autodiff.Tensor {
	h := autodiff.GELU(autodiff.MatMul(tensors.Enter(c, g, x), w1)) // this member's columns of w1
	return tensors.Leave(c, g, autodiff.MatMul(h, w2))              // and rows of w2
}

func mean(c context.Context, g *collective.Group, wire []collective.Narrow, grads [][]float32) error {
	for i, x := range grads {
		if err := wire[i].AllReduce(c, g, x, collective.Mean); err != nil {
			return err
		}
	}
	return nil
}

func TestMeansTravelInFewerBits(t *testing.T) {
	ws := rpctest.World(t, rpctest.Net(), 2)
	grads := [2][][]float32{{{1, 2}, {3}}, {{2, 4}, {5}}}
	var all sync.WaitGroup
	for r, w := range ws {
		all.Go(func() {
			g, err := collective.Open(t.Context(), w, "g")
			if assert.NoError(t, err) {
				assert.NoError(t, mean(t.Context(), g, make([]collective.Narrow, 2), grads[r]))
				assert.NoError(t, g.Close())
			}
		})
	}
	all.Wait()
	require.Equal(t, [2][][]float32{{{1.5, 3}, {4}}, {{1.5, 3}, {4}}}, grads)
}

// together runs fn on two workers, each in a pass, and gives the gradients of what fn returns.
func together(t *testing.T, fn func(c context.Context, g *collective.Group) (*autodiff.Tensor, error)) (grads [2][]float64) {
	ws := rpctest.World(t, rpctest.Net(), 2)
	var all sync.WaitGroup
	for r, w := range ws {
		all.Go(func() {
			g, err := collective.Open(t.Context(), w, "g")
			if !assert.NoError(t, err) {
				return
			}
			assert.NoError(t, w.Pass(t.Context(), func(c context.Context) error {
				leaf, err := fn(c, g)
				if err != nil {
					return err
				}
				found, err := ctx.Gradients(c)
				if err != nil {
					return err
				}
				grads[r], err = autodiff.Values[float64](found[leaf])
				return err
			}))
			assert.NoError(t, g.Close())
		})
	}
	all.Wait()
	return grads
}

// part is what a member does in a function that the pass's opener calls on all of them at once.
func part(c context.Context, g *collective.Group, mine, x *autodiff.Tensor) (*autodiff.Tensor, error) {
	y := tensors.AllReduce(c, g, autodiff.MatMul(x, mine), collective.Sum)
	return y, y.Err()
}

func TestAnOpenersLossHasGradientsOfTensorsOnAllMembers(t *testing.T) {
	gs, layers := make([]*collective.Group, 2), make([]*rpc.Func[*autodiff.Tensor, *autodiff.Tensor], 2)
	ws := rpctest.WorldWith(t, rpctest.Net(), 2, func(r int, cfg *rpc.Config) {
		mine := autodiff.New([]float64{2, 3}[r:r+1], 1, 1)
		layers[r] = rpc.Define("layer", func(c context.Context, x *autodiff.Tensor) (*autodiff.Tensor, error) { return part(c, gs[r], mine, x) })
		cfg.Functions = []rpc.Function{layers[r]}
	})
	var all sync.WaitGroup
	for r, w := range ws {
		all.Go(func() {
			var err error
			gs[r], err = collective.Open(t.Context(), w, "g")
			assert.NoError(t, err)
		})
	}
	all.Wait()
	require.NoError(t, ws[0].Pass(t.Context(), func(c context.Context) error {
		x := autodiff.New([]float64{5}, 1, 1).RequireGrad()
		there := layers[0].Async(c, ws[1].Name(), x)
		here := layers[0].Async(c, ws[0].Name(), x)
		y, err := here.Wait(c)
		if err == nil {
			_, err = there.Wait(c)
		}
		if err == nil {
			err = ctx.Backward(c, autodiff.Sum(y))
		}
		if err != nil {
			return err
		}
		found, err := ctx.Gradients(c)
		if err != nil {
			return err
		}
		of, err := autodiff.Values[float64](found[x])
		assert.Equal(t, []float64{2 + 3}, of)
		return err
	}))
	for _, g := range gs {
		require.NoError(t, g.Close())
	}
}

func TestTheRowsOfAllMembersHaveGradientsOfAllLosses(t *testing.T) {
	rows := [][]float64{{1, 2}, {3, 4, 5, 6}}
	grads := together(t, func(c context.Context, g *collective.Group) (*autodiff.Tensor, error) {
		mine := autodiff.New(rows[g.Rank()], g.Rank()+1, 2).RequireGrad()
		return mine, contrast(c, g, mine)
	})
	// The sum of all losses is |1+3+5, 2+4+6|².
	require.Equal(t, [2][]float64{{18, 24}, {18, 24, 18, 24}}, grads)
}

func TestALayerThatIsSpreadOverMembersHasTheGradientsOfTheWhole(t *testing.T) {
	x, w1, w2 := []float64{0.5, -1}, []float64{1, 2, 3, 4}, []float64{2, -1}
	grads := together(t, func(c context.Context, g *collective.Group) (*autodiff.Tensor, error) {
		r := g.Rank()
		in := autodiff.New(x, 1, 2).RequireGrad()
		y := spread(c, g, in, autodiff.New([]float64{w1[r], w1[2+r]}, 2, 1), autodiff.New(w2[r:r+1], 1, 1))
		return in, ctx.Backward(c, autodiff.Sum(y))
	})
	in := autodiff.New(x, 1, 2).RequireGrad()
	whole, err := autodiff.Backward(autodiff.Sum(autodiff.MatMul(autodiff.GELU(autodiff.MatMul(in, autodiff.New(w1, 2, 2))), autodiff.New(w2, 2, 1))))
	require.NoError(t, err)
	want, err := autodiff.Values[float64](whole.Of(in))
	require.NoError(t, err)
	for r := range grads {
		require.InDeltaSlice(t, want, grads[r], 1e-12, "rank %d", r)
	}
}
