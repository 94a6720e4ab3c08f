package disttest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/cudatest"
	"github.com/weft-project/weft/internal/gputest"
	"github.com/weft-project/weft/rpc"
)

// accelerated gives every worker two accelerators, and maps for its calls to each other worker.
func accelerated(t testing.TB, k gputest.Kind, m device.Map) func(i int, cfg *rpc.Config) {
	return func(i int, cfg *rpc.Config) {
		cfg.Devices = []device.Device{k.Make(t, 0, 0), k.Make(t, 1, 0)}
		cfg.DeviceMaps = map[string]device.Map{}
		for j := range cfg.WorldSize {
			cfg.DeviceMaps[name(j)] = m
		}
	}
}

func on(k gputest.Kind, w *rpc.Worker, i int, x *autodiff.Tensor) *autodiff.Tensor {
	return autodiff.To(x, must(w.Devices().Get(k.ID(i))))
}

// home is a tensor's values, wherever they are.
func home(x *autodiff.Tensor) *autodiff.Tensor { return autodiff.To(x, device.Host()) }

// PyTorch's test_gpu_simple and test_device_maps_backward_pass, with a map that swaps two devices,
// and the host beside them.
func TestGradientsTakeTheReversedMapToTheDeviceOfTheirTensor(t *testing.T) {
	gputest.Each(t, func(t *testing.T, k gputest.Kind) {
		type three struct{ A, B, H *autodiff.Tensor }
		var places []device.ID
		f := rpc.Define("three", func(_ context.Context, in three) (three, error) {
			places = []device.ID{in.A.Device(), in.B.Device(), in.H.Device()}
			in.A, in.B = autodiff.Mul(in.A, in.A), autodiff.Scale(in.B, 3)
			return three{in.A, in.B, autodiff.Mul(in.H, home(in.A))}, nil
		})
		swap := device.Map{k.ID(0): k.ID(1), k.ID(1): k.ID(0)}
		for to := range 2 {
			bubbleWith(t, 2, delays, accelerated(t, k, swap), func(t *testing.T, w *world) {
				a, b, h := on(k, w.ws[0], 0, param(1, 2)).Detach().RequireGrad(), on(k, w.ws[0], 1, param(3, 4)).Detach().RequireGrad(), param(5, 6)
				for _, mode := range []ctx.Mode{ctx.Smart, ctx.Fast} {
					w.pass(t, 0, func(c context.Context) {
						out := must(f.Call(c, name(to), three{a, b, h}))
						require.Equal(t, []device.ID{k.ID(1), k.ID(0), {}}, places)
						require.Equal(t, []device.ID{k.ID(0), k.ID(1), {}}, []device.ID{out.A.Device(), out.B.Device(), out.H.Device()})
						require.NoError(t, ctx.BackwardWith(c, ctx.Options{Mode: mode}, autodiff.Sum(out.A), autodiff.Sum(out.B), autodiff.Sum(out.H)))
						requireGradients(t, current(c), map[*autodiff.Tensor][]float64{a: {2 + 10, 4 + 24}, b: {3, 3}, h: {1, 4}})
						for leaf, g := range must(ctx.Gradients(c)) {
							require.Equal(t, leaf.Device(), g.Device())
						}
					})
				}
			}, f)
		}
	})
}

// PyTorch's test_gpu_to_cpu_continuation and its _gpu_root twin.
func TestAChainFromTheHostToAnAcceleratorAndBackGoesOnAcrossWorkers(t *testing.T) {
	gputest.Each(t, func(t *testing.T, k gputest.Kind) {
		var weights [3]*autodiff.Tensor
		there := rpc.Define("there", func(c context.Context, x *autodiff.Tensor) (*autodiff.Tensor, error) {
			me, _ := rpc.FromContext(c)
			return home(autodiff.Tanh(autodiff.Mul(on(k, me, 1, x), weights[me.Rank()]))), nil
		})
		bubbleWith(t, 3, delays, accelerated(t, k, nil), func(t *testing.T, w *world) {
			x := param(0.1, 0.2)
			for i, v := range []float64{2, 3, 4} {
				weights[i] = on(k, w.ws[i], 1, param(v, v)).Detach().RequireGrad()
			}
			forward := func(call func(to int, x *autodiff.Tensor) *autodiff.Tensor) *autodiff.Tensor {
				y := x
				for range 3 {
					y = call(1, autodiff.Exp(y))
					y = call(2, y)
				}
				return y
			}
			var plain [3]*autodiff.Tensor
			for i, p := range weights {
				plain[i] = home(p.Detach()).RequireGrad()
			}
			want := must(autodiff.Backward(autodiff.Sum(forward(func(to int, x *autodiff.Tensor) *autodiff.Tensor {
				return autodiff.Tanh(autodiff.Mul(x, plain[to]))
			}))))
			for what, root := range map[string]func(y *autodiff.Tensor) *autodiff.Tensor{
				"a root on the host":        func(y *autodiff.Tensor) *autodiff.Tensor { return y },
				"a root on the accelerator": func(y *autodiff.Tensor) *autodiff.Tensor { return on(k, w.ws[0], 0, y) },
			} {
				w.pass(t, 0, func(c context.Context) {
					loss := autodiff.Sum(root(forward(func(to int, x *autodiff.Tensor) *autodiff.Tensor { return must(there.Call(c, name(to), x)) })))
					require.NoError(t, ctx.Backward(c, loss), what)
					requireGradients(t, current(c), map[*autodiff.Tensor][]float64{x: values(t, want.Of(x))})
					for i := 1; i < 3; i++ {
						p := w.part(t, c, i)
						requireGradients(t, p, map[*autodiff.Tensor][]float64{weights[i]: values(t, want.Of(plain[i]))})
						require.Equal(t, k.ID(1), must(p.Gradients())[weights[i]].Device())
					}
				})
			}
		}, there)
	})
}

func TestSeveralDevicesAndDtypesTakePartInOnePass(t *testing.T) {
	gputest.Each(t, func(t *testing.T, k gputest.Kind) {
		mul := mulFn()
		m := device.Map{k.ID(0): k.ID(0), k.ID(1): k.ID(1)}
		bubbleWith(t, 3, delays, accelerated(t, k, m), func(t *testing.T, w *world) {
			var leaves, roots []*autodiff.Tensor
			w.pass(t, 0, func(c context.Context) {
				for i, dtype := range []device.Dtype{device.Float32, device.Float64} {
					for at := range 3 {
						x := autodiff.Full(dtype, float64(2+i+at), 2)
						if at > 0 {
							x = on(k, w.ws[0], at-1, x)
						}
						leaves = append(leaves, x.Detach().RequireGrad())
					}
				}
				for i, x := range leaves {
					y := must(mul.Call(c, name(i%3), pair{x, x}))
					y = must(mul.Call(c, name((i+1)%3), pair{y, x}))
					require.Equal(t, x.Device(), y.Device())
					roots = append(roots, autodiff.Sum(y))
				}
				require.NoError(t, ctx.Backward(c, roots...))
				grads := must(ctx.Gradients(c))
				require.Len(t, grads, len(leaves))
				for i, x := range leaves {
					g := grads[x]
					require.Equal(t, x.Device(), g.Device())
					require.Equal(t, x.Dtype(), g.Dtype())
					v := float64(2 + i/3 + i%3)
					require.Equal(t, []float64{3 * v * v, 3 * v * v}, values(t, autodiff.Cast(home(g), device.Float64)))
				}
			})
		}, mul)
	})
}

// PyTorch's test_dist_autograd_sync_streams: large values, which would be read too early if nobody
// waited for them.
func TestLargeTensorsOnAcceleratorsAreWholeWhenTheyAreUsed(t *testing.T) {
	gputest.Each(t, func(t *testing.T, k gputest.Kind) {
		twice := rpc.Define("twice", func(_ context.Context, x *autodiff.Tensor) (*autodiff.Tensor, error) {
			return autodiff.Scale(x, 2), nil
		})
		m := device.Map{k.ID(0): k.ID(1)}
		bubbleWith(t, 2, delays, accelerated(t, k, m), func(t *testing.T, w *world) {
			const n = 50_000 // hundreds of blocks of threads
			x := on(k, w.ws[0], 0, autodiff.RandFrom(rand.New(rand.NewPCG(1, 1)), n)).Detach().RequireGrad()
			want := must(autodiff.Values[float32](autodiff.Scale(x.Detach(), 4)))
			for range 5 {
				w.pass(t, 0, func(c context.Context) {
					y := must(twice.Call(c, "worker1", autodiff.Mul(x, x)))
					require.NoError(t, ctx.Backward(c, autodiff.Sum(y)))
					g := must(ctx.Gradients(c))[x]
					require.Equal(t, want, must(autodiff.Values[float32](g)))
				})
			}
		}, twice)
	})
}

// PyTorch's test_gradients_synchronizations.
func TestAPipelineOfLinearLayersOnAcceleratorsEqualsOneProcess(t *testing.T) {
	gputest.Each(t, func(t *testing.T, k gputest.Kind) {
		const in, wide = 30, 40
		r := rand.New(rand.NewPCG(2, 2))
		layers := []*nn.Linear{nn.NewLinear(r, in, wide), nn.NewLinear(r, wide, wide), nn.NewLinear(r, wide, in)}
		var placed [4]*nn.Linear
		var stage *rpc.Func[*autodiff.Tensor, *autodiff.Tensor]
		stage = rpc.Define("stage", func(c context.Context, x *autodiff.Tensor) (*autodiff.Tensor, error) {
			me, _ := rpc.FromContext(c)
			y := autodiff.GELU(placed[me.Rank()].Forward(x))
			if me.Rank() == 3 {
				return y, nil
			}
			return stage.Call(c, name(me.Rank()+1), y)
		})
		input := autodiff.NormalFrom(r, 1, 8, in)
		y := input
		for _, l := range layers {
			y = autodiff.GELU(l.Forward(y))
		}
		want := must(autodiff.Backward(autodiff.Sum(y)))
		alternating := func(i int, cfg *rpc.Config) { // worker0 on sim:0, worker1 on sim:1, worker2 on sim:0 …
			accelerated(t, k, nil)(i, cfg)
			cfg.DeviceMaps = map[string]device.Map{name((i + 1) % 4): {k.ID(i % 2): k.ID((i + 1) % 2)}}
		}
		bubbleWith(t, 4, delays, alternating, func(t *testing.T, w *world) {
			for i, l := range layers {
				at := func(x *autodiff.Tensor) *autodiff.Tensor { return on(k, w.ws[i+1], (i+1)%2, x.Detach()).RequireGrad() }
				placed[i+1] = &nn.Linear{W: at(l.W), B: at(l.B)}
			}
			w.pass(t, 0, func(c context.Context) {
				out := must(stage.Call(c, "worker1", on(k, w.ws[0], 0, input)))
				require.Equal(t, k.ID(0), out.Device())
				require.NoError(t, ctx.Backward(c, autodiff.Sum(out)))
				for i, l := range layers {
					grads := must(w.part(t, c, i+1).Gradients())
					for j, p := range placed[i+1].Params() {
						require.Equal(t, p.Device(), grads[p].Device())
						require.InDeltaSlice(t, must(autodiff.Values[float32](want.Of(l.Params()[j]))), must(autodiff.Values[float32](grads[p])), 1e-5, fmt.Sprint(i, j))
					}
				}
			})
		}, stage)
	})
}

func TestACalleesAcceleratorWithoutMemoryFailsTheBackwardWithItsNameAndThePassGoesOn(t *testing.T) {
	gputest.Each(t, func(t *testing.T, k gputest.Kind) {
		mul := mulFn()
		small := func(i int, cfg *rpc.Config) {
			cfg.Devices = []device.Device{k.Make(t, 0, []int{0, 7 * 4096}[i])}
			cfg.DeviceMaps = map[string]device.Map{name(1 - i): {k.ID(0): k.ID(0)}}
		}
		bubbleWith(t, 2, delays, small, func(t *testing.T, w *world) {
			x := on(k, w.ws[0], 0, ones(512)).Detach().RequireGrad() // one page
			w.pass(t, 0, func(c context.Context) {
				var ys []*autodiff.Tensor
				for range 2 {
					ys = append(ys, must(mul.Call(c, "worker1", pair{x, x})))
				}
				err := ctx.BackwardWith(c, ctx.Options{RetainGraph: true}, autodiff.Sum(ys[0]), autodiff.Sum(ys[1]))
				require.ErrorIs(t, err, device.ErrMemory)
				requireFailure(t, err, "worker1")
				require.ErrorContains(t, err, "device "+k.ID(0).String()+": alloc")
				require.Empty(t, must(ctx.Gradients(c)))
			})
			w.pass(t, 0, func(c context.Context) {
				require.NoError(t, ctx.Backward(c, autodiff.Sum(must(mul.Call(c, "worker1", pair{x, x})))))
			})
		}, mul)
	})
}

// wild has a kernel write where nothing lies.
func wild(d device.Device) error {
	g := d.(*device.Accelerator).Memory().(interface{ Driver() cuda.Driver }).Driver()
	m, err := g.Load(cudatest.Kernels())
	if err != nil {
		return err
	}
	f, err := m.Func("weft_wild", 0)
	if err != nil {
		return err
	}
	s, err := g.Stream()
	if err != nil {
		return err
	}
	var l cuda.List
	l.Add(f, [3]uint32{1, 1, 1}, [3]uint32{1, 1, 1}, 0)
	l.U32(1)
	if err := s.Run(&l); err != nil {
		return err
	}
	e, err := g.Event()
	if err != nil {
		return err
	}
	return errors.Join(s.Record(e), e.Sync()) // a late GPU runs no stream that nobody waits for
}

func TestAFaultOfAKernelLosesItsDeviceAndNothingElse(t *testing.T) {
	gputest.EachGPU(t, func(t *testing.T, k gputest.Kind) {
		mul := mulFn()
		m := device.Map{k.ID(0): k.ID(0), k.ID(1): k.ID(1)}
		bubbleWith(t, 2, delays, accelerated(t, k, m), func(t *testing.T, w *world) {
			var x [2]*autodiff.Tensor
			for i := range x {
				x[i] = on(k, w.ws[0], i, ones(4)).Detach().RequireGrad()
			}
			w.pass(t, 0, func(c context.Context) {
				var ys [2]*autodiff.Tensor
				for i := range ys {
					ys[i] = must(mul.Call(c, "worker1", pair{x[i], x[i]}))
				}
				require.Error(t, wild(must(w.ws[1].Devices().Get(k.ID(0)))))
				err := ctx.Backward(c, autodiff.Sum(ys[0]), autodiff.Sum(ys[1]))
				require.ErrorIs(t, err, device.ErrLost)
				require.ErrorContains(t, err, "worker1")
				require.ErrorContains(t, err, "device "+k.ID(0).String())
				require.Empty(t, must(ctx.Gradients(c)), "the pass has failed everywhere")
			})
			w.pass(t, 0, func(c context.Context) {
				_, err := mul.Call(c, "worker1", pair{x[0], x[0]})
				require.ErrorIs(t, err, device.ErrLost)
				require.NoError(t, ctx.Backward(c, autodiff.Sum(must(mul.Call(c, "worker1", pair{x[1], x[1]})))))
				require.Len(t, must(ctx.Gradients(c)), 1)
			})
			for _, at := range []int{0, 1} { // worker0's are all there
				y, err := autodiff.Values[float64](home(autodiff.Scale(x[at], 2)))
				require.NoError(t, err)
				require.Equal(t, []float64{2, 2, 2, 2}, y)
			}
		}, mul)
	})
}
