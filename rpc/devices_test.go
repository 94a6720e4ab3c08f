package rpc

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/gputest"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/transport"
)

var where = Define("where", func(_ context.Context, x *autodiff.Tensor) (device.ID, error) { return x.Device(), nil })

var twice = Define("twice", func(_ context.Context, x *autodiff.Tensor) (*autodiff.Tensor, error) {
	return autodiff.Scale(x, 2), nil
})

var stray = Define("stray", func(c context.Context, _ int) (*autodiff.Tensor, error) {
	w, _ := FromContext(c)
	ids := w.Devices().IDs()
	dev, err := w.Devices().Get(ids[len(ids)-1]) // which no map names
	if err != nil {
		return nil, err
	}
	return autodiff.To(autodiff.Rand(2), dev), nil
})

// accelerated gives each of two workers accelerators, worker0's first mapped to worker1's second.
func accelerated(t *testing.T, k gputest.Kind, network bool) []*Worker {
	change := func(i int, cfg *Config) {
		cfg.Functions = []Function{where, twice, stray}
		if i == 0 {
			cfg.Devices = []device.Device{k.Make(t, 0, 0), k.Make(t, 3, 0)}
			cfg.DeviceMaps = map[string]device.Map{"worker1": {k.ID(0): k.ID(1)}}
		} else {
			cfg.Devices = []device.Device{k.Make(t, 1, 0), k.Make(t, 2, 0)}
		}
	}
	if network {
		return world(t, 2, nil, change)
	}
	return sim(t, 2, change)
}

func simOf(t *testing.T, w *Worker, i int) device.Device {
	t.Helper()
	d, err := w.Devices().Get(device.Sim(i))
	require.NoError(t, err)
	return d
}

func TestTensorsLandWhereTheMapSaysAndResultsAndGradientsTakeTheWayBack(t *testing.T) {
	gputest.Each(t, func(t *testing.T, k gputest.Kind) {
		for name, quic := range map[string]bool{"simnet": false, "quic": true} {
			t.Run(name, func(t *testing.T) {
				ws := accelerated(t, k, quic)
				x := autodiff.To(autodiff.New([]float32{1, 2, 3}), deviceOf(t, ws[0], k.ID(0))).RequireGrad()
				require.NoError(t, x.Err())
				require.NoError(t, ws[0].Pass(t.Context(), func(c context.Context) error {
					id, err := where.Call(ctx.NoGrad(c), "worker1", x)
					require.NoError(t, err)
					require.Equal(t, k.ID(1), id)
					y, err := twice.Call(c, "worker1", x)
					require.NoError(t, err)
					require.Equal(t, k.ID(0), y.Device())
					require.NotZero(t, deviceOf(t, ws[1], k.ID(1)).Stats().Live)
					require.NoError(t, ctx.Backward(c, autodiff.Sum(y)))
					grads, err := ctx.Gradients(c)
					require.NoError(t, err)
					require.Equal(t, k.ID(0), grads[x].Device())
					got, err := autodiff.Values[float32](grads[x])
					require.NoError(t, err)
					require.Equal(t, []float32{2, 2, 2}, got)
					return nil
				}))
				require.NoError(t, ws[0].Settle(t.Context()))
				eventually(t, "all buffers are released", func() bool { // a handler may hold its answer a moment longer than the caller waits
					return deviceOf(t, ws[0], k.ID(0)).Stats().Live == 0 && deviceOf(t, ws[1], k.ID(1)).Stats().Live == 0
				})
			})
		}
	})
}

func TestAReferencesTensorsTakeTheReversedMapHome(t *testing.T) {
	gputest.Each(t, func(t *testing.T, k gputest.Kind) {
		ws := accelerated(t, k, false)
		c := ws[0].Context(t.Context())
		x := autodiff.To(autodiff.New([]float32{1, 2}), deviceOf(t, ws[0], k.ID(0)))
		r := twice.Remote(c, "worker1", x)
		y, err := r.ToHere(c)
		require.NoError(t, err)
		require.Equal(t, k.ID(0), y.Device())
		got, err := autodiff.Values[float32](y)
		require.NoError(t, err)
		require.Equal(t, []float32{2, 4}, got)
		r.Release()
	})
}

func TestAnUnmappedDeviceIsAnImmediateErrorAndTheNextCallWorks(t *testing.T) {
	gputest.Each(t, func(t *testing.T, k gputest.Kind) {
		ws := accelerated(t, k, false)
		c := ws[0].Context(t.Context())
		for range 3 {
			_, err := twice.Call(c, "worker1", autodiff.To(autodiff.Rand(2), deviceOf(t, ws[0], k.ID(3))))
			require.ErrorIs(t, err, device.ErrBadMap)
			require.ErrorContains(t, err, k.ID(3).String())
			_, err = stray.Call(c, "worker1", 0)
			require.ErrorIs(t, err, device.ErrBadMap)
			require.ErrorContains(t, err, k.ID(2).String())
			require.ErrorContains(t, err, "worker1")
			require.ErrorIs(t, twice.Remote(c, "worker1", autodiff.To(autodiff.Rand(2), deviceOf(t, ws[0], k.ID(3)))).Ready(c), device.ErrBadMap)
			y, err := twice.Call(c, "worker1", autodiff.New([]float32{4}))
			require.NoError(t, err)
			require.Equal(t, device.ID{}, y.Device())
		}
		_, err := twice.Call(ws[1].Context(t.Context()), "worker0", autodiff.To(autodiff.Rand(2), deviceOf(t, ws[1], k.ID(1))))
		require.ErrorIs(t, err, device.ErrBadMap, "a map is for calls of its own worker")
		require.ErrorContains(t, err, "calls from worker1 to worker0 use {}, answers to calls from worker0 the reverse of its map, {"+k.ID(1).String()+"→"+k.ID(0).String()+"}")
	})
}

func TestACalleeWithoutMemoryAnswersSoAndLivesOn(t *testing.T) {
	gputest.Each(t, func(t *testing.T, k gputest.Kind) {
		ws := sim(t, 2, func(i int, cfg *Config) {
			cfg.Functions = []Function{where}
			cfg.Devices = []device.Device{k.Make(t, 0, []int{0, 4096}[i])}
			if i == 0 {
				cfg.DeviceMaps = map[string]device.Map{"worker1": {k.ID(0): k.ID(0)}}
			}
		})
		c := ws[0].Context(t.Context())
		_, err := where.Call(c, "worker1", autodiff.To(autodiff.Rand(5000), deviceOf(t, ws[0], k.ID(0))))
		require.ErrorIs(t, err, device.ErrMemory)
		require.NotErrorIs(t, err, ErrProtocol)
		id, err := where.Call(c, "worker1", autodiff.To(autodiff.Rand(5), deviceOf(t, ws[0], k.ID(0))))
		require.NoError(t, err)
		require.Equal(t, k.ID(0), id)
	})
}

// mapped is a world where worker0 maps devices to a worker, which may be itself.
func mapped(t *testing.T, k gputest.Kind, to string, m device.Map, fns ...Function) []*Worker {
	t.Helper()
	return sim(t, 2, func(i int, cfg *Config) {
		cfg.Functions = fns
		cfg.Devices = []device.Device{k.Make(t, 0, 0), k.Make(t, 1, 0)}
		if i == 0 {
			cfg.DeviceMaps = map[string]device.Map{to: m}
		}
	})
}

func TestEveryAcceleratorCanBeMappedToEveryOtherBesideTheHost(t *testing.T) {
	gputest.Each(t, func(t *testing.T, k gputest.Kind) {
		type two struct{ Mapped, Host *autodiff.Tensor }
		places := Define("places", func(_ context.Context, in two) ([]device.ID, error) {
			return []device.ID{in.Mapped.Device(), in.Host.Device()}, nil
		})
		doubled := Define("doubled", func(_ context.Context, in two) (two, error) {
			return two{autodiff.Scale(in.Mapped, 2), autodiff.Scale(in.Host, 2)}, nil
		})
		for _, to := range []string{"worker0", "worker1"} {
			for _, pair := range [][2]device.ID{
				{{}, {}}, {k.ID(0), k.ID(0)}, {k.ID(0), k.ID(1)}, {k.ID(1), k.ID(0)}, {k.ID(1), k.ID(1)},
			} {
				src, dst := pair[0], pair[1]
				t.Run(fmt.Sprintf("%v/%v/%s", src, dst, to), func(t *testing.T) {
					ws := mapped(t, k, to, device.Map{src: dst}, places, doubled)
					c := ws[0].Context(t.Context())
					in := two{autodiff.To(autodiff.New([]float32{1, 2}), deviceOf(t, ws[0], src)), autodiff.New([]float32{3})}
					got, err := places.Call(c, to, in)
					require.NoError(t, err)
					require.Equal(t, []device.ID{dst, {}}, got)
					out, err := doubled.Call(c, to, in)
					require.NoError(t, err)
					require.Equal(t, src, out.Mapped.Device())
					require.Equal(t, device.ID{}, out.Host.Device())
					values, err := autodiff.Values[float32](out.Mapped)
					require.NoError(t, err)
					require.Equal(t, []float32{2, 4}, values)
				})
			}
		}
	})
}

func TestTheHostMayBeMappedToAnAcceleratorAndBack(t *testing.T) {
	gputest.Each(t, func(t *testing.T, k gputest.Kind) {
		for name, m := range map[string]device.Map{
			"host to accelerator": {{}: k.ID(1)}, "swapped": {{}: k.ID(0), k.ID(0): {}},
			"in a circle": {{}: k.ID(0), k.ID(0): k.ID(1), k.ID(1): {}},
		} {
			for _, to := range []string{"worker0", "worker1"} {
				t.Run(name+"/"+to, func(t *testing.T) {
					ws := mapped(t, k, to, m, where, twice)
					c := ws[0].Context(t.Context())
					for src, dst := range m {
						x := autodiff.To(autodiff.New([]float32{1, 2}), deviceOf(t, ws[0], src))
						got, err := where.Call(c, to, x)
						require.NoError(t, err)
						require.Equal(t, dst, got)
						y, err := twice.Call(c, to, x)
						require.NoError(t, err)
						require.Equal(t, src, y.Device())
					}
				})
			}
		}
	})
}

func deviceOf(t *testing.T, w *Worker, id device.ID) device.Device {
	t.Helper()
	d, err := w.Devices().Get(id)
	require.NoError(t, err)
	return d
}

func TestUnmappedDevicesTakeNoPlacesOfOtherCalls(t *testing.T) {
	ws := sim(t, 2, func(i int, cfg *Config) {
		limited(1, 1, twice, stray)(i, cfg)
		cfg.Devices = []device.Device{device.NewSim(device.SimConfig{Index: 2})}
	})
	c := ws[0].Context(t.Context())
	x := autodiff.To(autodiff.Rand(2), simOf(t, ws[0], 2))
	for range 20 {
		everyWay(t, twice, func(t *testing.T, call func(context.Context, string, *autodiff.Tensor) (*autodiff.Tensor, error)) {
			_, err := call(c, "worker1", x)
			require.ErrorIs(t, err, device.ErrBadMap)
		})
		everyWay(t, stray, func(t *testing.T, call func(context.Context, string, int) (*autodiff.Tensor, error)) {
			_, err := call(c, "worker1", 0)
			require.ErrorIs(t, err, device.ErrBadMap)
		})
	}
	_, err := twice.Call(c, "worker1", autodiff.Rand(2))
	require.NoError(t, err)
	owns(t, ws[1], 0)
}

func TestTensorsOnTwoDevicesFailTheOpAtTheCalleeWithBothNames(t *testing.T) {
	ws := sim(t, 2, func(_ int, cfg *Config) {
		cfg.Functions = []Function{addFn}
		cfg.Devices = []device.Device{device.NewSim(device.SimConfig{})}
		cfg.DeviceMaps = map[string]device.Map{"worker1": {device.Sim(0): device.Sim(0)}}
	})
	_, err := addFn.Call(ws[0].Context(t.Context()), "worker1", pair{autodiff.Rand(2), autodiff.To(autodiff.Rand(2), simOf(t, ws[0], 0))})
	require.ErrorIs(t, err, autodiff.ErrDevices)
	var remote *RemoteError
	require.ErrorAs(t, err, &remote)
	require.ErrorContains(t, err, "cpu")
	require.ErrorContains(t, err, "sim:0")
}

func TestWhatADeviceDidInAWorseWayIsAMetric(t *testing.T) {
	gpu := gputest.GPU(t, 0, ptx.Config{})
	ws := sim(t, 2, func(i int, cfg *Config) {
		if i == 0 {
			cfg.Devices = []device.Device{gpu}
		}
	})
	x := autodiff.To(autodiff.Rand(3, 3), gpu)
	_, err := autodiff.Values[float32](autodiff.MatMul(x, x))
	require.NoError(t, err)
	require.Contains(t, scrape(t, ws...), sample("device_work_total", `by="kernels",device="cuda:0",why="there is no library",work="product"`, 0))
}

func TestADevicesMemoryIsAMetric(t *testing.T) {
	gpu := gputest.GPU(t, 0, ptx.Config{})
	ws := sim(t, 1, func(_ int, cfg *Config) { cfg.Devices = []device.Device{gpu} })
	buf := func() *device.Buffer {
		b, err := gpu.Alloc(5000)
		require.NoError(t, err)
		return b
	}
	one, two := buf(), buf()
	require.NoError(t, one.Release())
	for of, bytes := range map[string]string{"used": "5120", "cached": "5120", "peak": "10240"} {
		require.Equal(t, bytes, scrape(t, ws...)[sample("device_memory_bytes", fmt.Sprintf(`device="cuda:0",of=%q`, of), 0)])
	}
	require.NoError(t, two.Release())
}

// Two workers use one GPU, as two processes would: what they send one another never leaves it.
func TestTensorsAndGradientsOnASharedGPUStayOnIt(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // there is no such lane
	}
	for name, late := range map[string]bool{"at once": false, "late": true} {
		t.Run(name, func(t *testing.T) {
			host := new(ptx.Host)
			ws := world(t, 2, nil, func(i int, cfg *Config) {
				c := ptx.Config{Host: host, UUID: "GPU-1"}
				if late {
					c.Late = rand.New(rand.NewPCG(uint64(i), 7))
				}
				cfg.Functions = []Function{twice}
				cfg.Devices = []device.Device{gputest.GPU(t, i, c)}
				if i == 0 {
					cfg.DeviceMaps = map[string]device.Map{"worker1": {device.CUDA(0): device.CUDA(1)}}
				}
			})
			gpu := deviceOf(t, ws[0], device.CUDA(0))
			step := func() (sent, received uint64) {
				x := autodiff.To(autodiff.RandFrom(rand.New(rand.NewPCG(1, 1)), 1<<14), gpu).RequireGrad()
				before := ws[0].Lanes()[0].Lanes[0]
				require.Equal(t, transport.LaneCUDA, before.Name)
				require.Empty(t, before.Why)
				require.NoError(t, ws[0].Pass(t.Context(), func(c context.Context) error {
					y, err := twice.Call(c, "worker1", autodiff.Mul(x, x))
					require.NoError(t, err)
					require.NoError(t, ctx.Backward(c, autodiff.Sum(y)))
					grads, err := ctx.Gradients(c)
					require.NoError(t, err)
					require.Equal(t, device.CUDA(0), grads[x].Device())
					got, err := autodiff.Values[float32](grads[x])
					require.NoError(t, err)
					want, err := autodiff.Values[float32](autodiff.Scale(x.Detach(), 4))
					require.NoError(t, err)
					require.Equal(t, want, got)
					return nil
				}))
				after := ws[0].Lanes()[0].Lanes[0]
				return after.Sent - before.Sent, after.Received - before.Received
			}
			eventually(t, "both have opened the other's outbox", func() bool {
				sent, received := step()
				return sent == received && sent == 2*4<<14
			})
			samples := scrape(t, ws...)
			require.Equal(t, fmt.Sprint(ws[0].Lanes()[0].Lanes[0].Passed), samples[sample("lane_passed_messages_total", `lane="cuda",peer="worker1"`, 0)])
			require.Equal(t, "local", ws[0].Lanes()[0].Calls)
			require.Equal(t, "local", ws[0].Lanes()[0].Tensors)
			require.NoError(t, ws[0].Settle(t.Context()))
		})
	}
}
