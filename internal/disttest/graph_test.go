package disttest

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/rpc"
)

// route is a call that is passed on along To before the last adds.
type route struct {
	To   []string
	A, B *autodiff.Tensor
}

// relayFn passes a call on, by Call or through a reference.
func relayFn(remote bool) *rpc.Func[route, *autodiff.Tensor] {
	var relay *rpc.Func[route, *autodiff.Tensor]
	relay = rpc.Define("relay", func(c context.Context, in route) (*autodiff.Tensor, error) {
		if len(in.To) == 0 {
			return autodiff.Add(in.A, in.B), nil
		}
		return send(c, relay, in, remote)
	})
	return relay
}

func send(c context.Context, relay *rpc.Func[route, *autodiff.Tensor], in route, remote bool) (*autodiff.Tensor, error) {
	next := route{in.To[1:], in.A, in.B}
	if !remote {
		return relay.Call(c, in.To[0], next)
	}
	ref := relay.Remote(c, in.To[0], next)
	defer ref.Release()
	return ref.ToHere(c)
}

func TestLeavingFreesThePassOnAllWorkersItReached(t *testing.T) {
	relay := relayFn(false)
	nothing := rpc.Define("nothing", func(context.Context, int) (int, error) { return 0, nil })
	bubble(t, 4, delays, func(t *testing.T, w *world) {
		for _, x := range []*autodiff.Tensor{param(1, 2), ones(2)} {
			w.pass(t, 0, func(c context.Context) {
				must(relay.Call(c, "worker1", route{[]string{"worker2", "worker3", "worker0"}, x, ones(2)}))
				for _, worker := range w.ws {
					require.Len(t, worker.Passes(), 1, worker.Name())
				}
				require.Equal(t, []ctx.WorkerID{1, 3}, current(c).Known(), "worker3 called back")
			})
		}
		w.pass(t, 2, func(c context.Context) {
			for i := range w.ws {
				must(nothing.Call(c, name(i), 1))
			}
			require.Equal(t, []ctx.WorkerID{0, 1, 2, 3}, current(c).Known(), "also without tensors")
			require.Empty(t, current(c).SendFunctions())
		})
	}, relay, nothing)
}

func TestAnErrorInAPassLeavesNothing(t *testing.T) {
	matmul := matmulFn()
	bubble(t, 2, delays, func(t *testing.T, w *world) {
		w.pass(t, 0, func(c context.Context) {
			_, err := matmul.Call(c, "worker1", pair{autodiff.New(make([]float64, 6), 2, 3).RequireGrad(), ones(2, 2)})
			require.ErrorIs(t, err, kernels.ErrOperands)
			require.Empty(t, current(c).SendFunctions(), "nobody will send its gradients")
		})
		stop := errors.New("stop")
		require.ErrorIs(t, w.ws[0].Pass(t.Context(), func(context.Context) error { return stop }), stop)
		require.Empty(t, w.ws[0].Passes())
	}, matmul)
}

func TestAChainOfCallsIsRecordedOnEveryWorkerOfIt(t *testing.T) {
	for how, remote := range map[string]bool{"ByCalls": false, "ThroughReferences": true} {
		t.Run(how, func(t *testing.T) {
			relay := relayFn(remote)
			bubble(t, 4, delays, func(t *testing.T, w *world) {
				t1, t2 := param(1, 2), param(3, 4)
				w.pass(t, 0, func(c context.Context) {
					out := must(send(c, relay, route{[]string{"worker1", "worker2", "worker3"}, t1, t2}, remote))
					parts := []*ctx.Pass{current(c), w.part(t, c, 1), w.part(t, c, 2), w.part(t, c, 3)}
					for i, p := range parts[:3] {
						require.Equal(t, ctx.WorkerID(i+1), p.SendFunctions()[0].Peer, "the arguments")
						last := p.RecvFunctions()[len(p.RecvFunctions())-1]
						require.Equal(t, ctx.WorkerID(i+1), last.Peer, "the result")
					}
					for _, p := range parts[1:3] {
						require.Len(t, p.SendFunctions(), 2)
						require.Len(t, p.RecvFunctions(), 2)
						for _, s := range p.SendFunctions() {
							for _, e := range s.Node.Next() {
								requireRecv(t, p, e.Node)
							}
						}
					}
					last := one(t, parts[3].SendFunctions()).Node
					for _, e := range one(t, last.Next()).Node.Next() {
						require.Same(t, one(t, parts[3].RecvFunctions()).Node, e.Node)
					}
					require.NoError(t, ctx.Backward(c, autodiff.Sum(out)))
					requireGradients(t, parts[0], map[*autodiff.Tensor][]float64{t1: {1, 1}, t2: {1, 1}})
				})
			}, relay)
		})
	}
}

// requireRecv checks that a node is a recv function of the pass.
func requireRecv(t *testing.T, p *ctx.Pass, n *autodiff.Node) {
	t.Helper()
	for _, r := range p.RecvFunctions() {
		if r.Node == n {
			return
		}
	}
	require.Failf(t, "no recv function", "%s", n.Name())
}

func TestACallThatComesBackIsRecordedTwiceAtTheCaller(t *testing.T) {
	for how, remote := range map[string]bool{"ByCalls": false, "ThroughReferences": true} {
		t.Run(how, func(t *testing.T) {
			relay := relayFn(remote)
			bubble(t, 2, delays, func(t *testing.T, w *world) {
				t1 := param(1, 2)
				w.pass(t, 0, func(c context.Context) {
					out := must(send(c, relay, route{[]string{"worker1", "worker0"}, t1, ones(2)}, remote))
					require.Len(t, current(c).SendFunctions(), 2)
					require.Len(t, current(c).RecvFunctions(), 2)
					require.NoError(t, ctx.Backward(c, autodiff.Sum(out)))
					requireGradients(t, current(c), map[*autodiff.Tensor][]float64{t1: {1, 1}})
				})
			}, relay)
		})
	}
}

func TestTensorsWithoutGradientsAreNotRecorded(t *testing.T) {
	add := addFn()
	bubble(t, 2, delays, func(t *testing.T, w *world) {
		w.pass(t, 0, func(c context.Context) {
			must(add.Call(c, "worker1", pair{ones(2), ones(2)}))
			must(add.Call(ctx.NoGrad(c), "worker1", pair{param(1, 2), ones(2)}))
			ref := add.Remote(c, "worker1", pair{ones(2), ones(2)})
			defer ref.Release()
			must(ref.ToHere(c))
			for _, p := range []*ctx.Pass{current(c), w.part(t, c, 1)} {
				require.Empty(t, p.SendFunctions())
				require.Empty(t, p.RecvFunctions())
			}
			require.Len(t, w.ws[1].Passes(), 1)
		})
	}, add)
}

func TestEveryTensorOfAMessageKeepsItsOwnMind(t *testing.T) {
	type args struct {
		List []*autodiff.Tensor
		Map  map[string]*autodiff.Tensor
	}
	sum := rpc.Define("sum", func(_ context.Context, in args) (*autodiff.Tensor, error) {
		total := in.Map["x"]
		for i, x := range in.List {
			if x.RequiresGrad() != (i%2 == 0) {
				return nil, errors.New("the flags did not survive")
			}
			total = autodiff.Add(total, autodiff.Scale(x, float64(i)))
		}
		return total, nil
	})
	bubble(t, 2, delays, func(t *testing.T, w *world) {
		var in args
		in.Map = map[string]*autodiff.Tensor{"x": ones(2)}
		want := map[*autodiff.Tensor][]float64{}
		for i := range 10 {
			x := ones(2)
			if i%2 == 0 {
				x.RequireGrad()
				want[x] = []float64{float64(i), float64(i)}
			}
			in.List = append(in.List, x)
		}
		w.pass(t, 0, func(c context.Context) {
			for _, remote := range []bool{false, true} {
				var out *autodiff.Tensor
				if remote {
					ref := sum.Remote(c, "worker1", in)
					out = must(ref.ToHere(c))
					ref.Release()
				} else {
					out = must(sum.Call(c, "worker1", in))
				}
				require.Equal(t, []float64{46, 46}, values(t, out))
				var leaves []*autodiff.Tensor
				for _, e := range current(c).SendFunctions()[0].Node.Next() {
					if e.Node != nil {
						leaves = append(leaves, e.Node.Leaf())
					}
				}
				require.Equal(t, 5, len(leaves))
				for i, leaf := range leaves {
					require.Same(t, in.List[2*i], leaf)
				}
				require.NoError(t, ctx.Backward(c, autodiff.Sum(out)))
				requireGradients(t, current(c), want)
				for x, v := range want {
					want[x] = []float64{2 * v[0], 2 * v[1]}
				}
			}
		})
	}, sum)
}

func TestAParameterThatOnlyTheCalleeKnowsGetsItsGradientThere(t *testing.T) {
	p := param(3, 4)
	get := rpc.Define("get", func(context.Context, struct{}) (*autodiff.Tensor, error) { return p, nil })
	bubble(t, 2, delays, func(t *testing.T, w *world) {
		w.pass(t, 0, func(c context.Context) {
			require.NoError(t, ctx.Backward(c, autodiff.Sum(must(get.Call(c, "worker1", struct{}{})))))
			requireGradients(t, current(c), nil)
			requireGradients(t, w.part(t, c, 1), map[*autodiff.Tensor][]float64{p: {1, 1}})
		})
		w.pass(t, 0, func(c context.Context) {
			ref := get.Remote(c, "worker1", struct{}{})
			defer ref.Release()
			require.NoError(t, ctx.Backward(c, autodiff.Sum(must(ref.ToHere(c)))))
			requireGradients(t, w.part(t, c, 1), map[*autodiff.Tensor][]float64{p: {1, 1}})
		})
	}, get)
}

func TestACallAndItsResultAreRecordedOnBothSidesInTheOrderOfTheirTensors(t *testing.T) {
	for how, remote := range map[string]bool{"ByCall": false, "ThroughAReference": true} {
		t.Run(how, func(t *testing.T) {
			relay := relayFn(remote)
			bubble(t, 2, delays, func(t *testing.T, w *world) {
				t1, t2 := param(1, 2), param(3, 4)
				w.pass(t, 0, func(c context.Context) {
					out := must(send(c, relay, route{[]string{"worker1"}, t1, t2}, remote))
					here, there := current(c), w.part(t, c, 1)
					for i, e := range one(t, here.SendFunctions()).Node.Next() {
						require.Same(t, []*autodiff.Tensor{t1, t2}[i], e.Node.Leaf())
						require.Zero(t, e.Slot)
					}
					require.Same(t, one(t, here.RecvFunctions()).Node, autodiff.EdgesOf(out)[0].Node)
					add := one(t, one(t, there.SendFunctions()).Node.Next()).Node
					require.Equal(t, "Add", add.Name())
					for slot, e := range add.Next() {
						require.Same(t, one(t, there.RecvFunctions()).Node, e.Node)
						require.Equal(t, slot, e.Slot)
					}
					require.Equal(t, one(t, here.SendFunctions()).Message, one(t, there.RecvFunctions()).Message)
					require.Equal(t, one(t, there.SendFunctions()).Message, one(t, here.RecvFunctions()).Message)
				})
			}, relay)
		})
	}
}

// PyTorch's test_mixed_requires_grad.
func TestACalleeSeesWhichArgumentsRequireAGradient(t *testing.T) {
	ask := rpc.Define("ask", func(_ context.Context, in pair) (*autodiff.Tensor, error) {
		if in.B.RequiresGrad() {
			return autodiff.Sub(in.A, in.B), nil
		}
		return autodiff.Mul(in.A, in.B), nil
	})
	bubble(t, 2, delays, func(t *testing.T, w *world) {
		x, y := param(1, 2), autodiff.New([]float64{3, 4})
		w.pass(t, 0, func(c context.Context) {
			require.NoError(t, ctx.Backward(c, autodiff.Sum(must(ask.Call(c, "worker1", pair{x, y})))))
			requireGradients(t, current(c), map[*autodiff.Tensor][]float64{x: {3, 4}})
		})
		w.pass(t, 0, func(c context.Context) {
			require.NoError(t, ctx.Backward(c, autodiff.Sum(must(ask.Call(c, "worker1", pair{x, y.RequireGrad()})))))
			requireGradients(t, current(c), map[*autodiff.Tensor][]float64{x: {1, 1}, y: {-1, -1}})
		})
	}, ask)
}
