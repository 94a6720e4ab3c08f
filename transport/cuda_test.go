//go:build linux

package transport_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/gpumem"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
	"github.com/weft-project/weft/transport"
	"github.com/weft-project/weft/transport/internal/transporttest"
)

// oneGPU is two devices that are one GPU, as two processes of a host see it.
func oneGPU(t testing.TB, c ptx.Config, late bool) (here, there *device.Accelerator) {
	c.Host, c.UUID = new(ptx.Host), "GPU-1"
	end := func(i int) *device.Accelerator {
		if late {
			c.Late = rand.New(rand.NewPCG(uint64(i), 5))
		}
		return ptxtest.GPU(t, device.CUDA(i), c)
	}
	return end(0), end(1)
}

// cudaPair is a link between workers that use one GPU, as cuda:0 and cuda:1.
func cudaPair(t testing.TB, late bool, lanes ...string) (p *transporttest.Pair, here, there *device.Accelerator) {
	here, there = oneGPU(t, ptx.Config{Bytes: 14 << 20}, late) // which leaves 4 MiB for an outbox
	p = transporttest.Link(t, func(t testing.TB) (dialer, listener transport.Network) {
		return network(t, transport.Config{Lanes: lanes, Devices: []device.Device{here}}),
			network(t, transport.Config{Lanes: lanes, Devices: []device.Device{there}})
	})
	for _, l := range []transport.Link{p.Dialed, p.Served} {
		require.Equal(t, transport.LaneCUDA, l.Lanes()[0].Name)
		require.Empty(t, l.Lanes()[0].Why)
	}
	return p, here, there
}

// at puts what arrives where it belongs, of those devices.
func at(devs ...device.Device) transport.Place {
	return func(id device.ID, n int) (*device.Buffer, error) {
		for _, d := range devs {
			if d.ID() == id {
				return d.Alloc(n)
			}
		}
		return nil, device.ErrNoDevice
	}
}

// bring takes tensors to the other end on a stream of their own.
func bring(t testing.TB, p *transporttest.Pair, place transport.Place, ts ...transport.Tensor) *transport.Message {
	here, there := p.Stream(t)
	sent := make(chan error, 1)
	go func() { sent <- here.Send(p.C, &transport.Message{Tensors: ts}) }()
	got, err := there.Recv(p.C, place)
	require.NoError(t, err)
	require.NoError(t, <-sent)
	here.Reset(nil)
	there.Reset(nil)
	return got
}

// toward is a tensor on a device that is to land on another.
func toward(t testing.TB, r *rand.Rand, from device.Device, to device.ID, n int) transport.Tensor {
	x := transporttest.Tensor(t, r, from, device.Float32, n)
	x.Device = to
	return x
}

// warm sends until the lane has its outbox.
func warm(t testing.TB, p *transporttest.Pair, here, there device.Device) {
	x := toward(t, rand.New(rand.NewPCG(9, 9)), here, there.ID(), 1<<14)
	eventually(t, func() bool {
		got := bring(t, p, at(there), x)
		transporttest.Same(t, []transport.Tensor{x}, got.Tensors)
		got.Release()
		return p.Dialed.Lanes()[0].Sent > 0
	})
	passed := p.Dialed.Lanes()[0].Passed
	bring(t, p, at(there), x).Release()
	require.Equal(t, passed, p.Dialed.Lanes()[0].Passed, "what goes by the lane does not pass it by")
	release(t, x)
}

// hold has a tensor of an accelerator be written by work that is held until it is released.
func hold(t testing.TB, d *device.Accelerator, x transport.Tensor) (release func()) {
	from := transporttest.Tensor(t, rand.New(rand.NewPCG(1, 1)), d, x.Dtype, x.Shape.Elems())
	require.NoError(t, d.Check())
	require.NoError(t, d.CopyWithin(x.Buf, from.Buf))
	free := d.Memory().(*gpumem.GPU).Driver().(*ptx.Machine).Hold(0)
	return func() {
		free()
		require.NoError(t, from.Buf.Release())
	}
}

func TestATensorThatIsThereIsNotSentAfterWhatElseItsGPUHasToDo(t *testing.T) {
	leak.Check(t)
	p, here, there := cudaPair(t, true)
	warm(t, p, here, there)
	r := rand.New(rand.NewPCG(8, 1))
	late, x := toward(t, r, here, there.ID(), 1<<14), toward(t, r, here, there.ID(), 1<<14)
	free := hold(t, here, late)
	a, b := p.Stream(t)
	sent := make(chan error, 1)
	go func() { sent <- a.Send(p.C, &transport.Message{Tensors: []transport.Tensor{late}}) }()
	for range 5 {
		got := bring(t, p, at(there), x)
		transporttest.Same(t, []transport.Tensor{x}, got.Tensors)
		got.Release()
	}
	free()
	got, err := b.Recv(p.C, at(there))
	require.NoError(t, errors.Join(err, <-sent))
	transporttest.Same(t, []transport.Tensor{late}, got.Tensors)
	got.Release()
	a.Reset(nil)
	b.Reset(nil)
	release(t, late)
	release(t, x)
}

func TestTheCUDALaneIsANetwork(t *testing.T) {
	transporttest.Run(t, func(t testing.TB) (dialer, listener transport.Network) {
		here, there := oneGPU(t, ptx.Config{}, true)
		return network(t, transport.Config{Devices: []device.Device{here}}), network(t, transport.Config{Devices: []device.Device{there}})
	})
}

func both(t *testing.T, run func(t *testing.T, late bool)) {
	t.Run("at once", func(t *testing.T) { run(t, false) })
	t.Run("late", func(t *testing.T) { run(t, true) })
}

func TestTensorsOnASharedGPUStayThereAndTheOthersGoBesideThem(t *testing.T) {
	for name, lanes := range map[string][]string{
		"with local": nil, "with bulk": {transport.LaneCUDA, transport.LaneBulk}, "alone": {transport.LaneCUDA},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, late bool) {
				leak.Check(t)
				p, here, there := cudaPair(t, late, lanes...)
				warm(t, p, here, there)
				r := rand.New(rand.NewPCG(3, 4))
				sim := device.NewSim(device.SimConfig{})
				for _, n := range []int{1, 1000, 1 << 16, 1<<19 + 3, 5 << 18} { // the last ones are larger than a piece, and than the outbox
					before := p.Dialed.Lanes()[0].Sent
					ts := []transport.Tensor{
						toward(t, r, here, there.ID(), n),
						{},
						toward(t, r, device.Host(), device.ID{}, 1<<16),
						toward(t, r, here, there.ID(), 1<<14),
						toward(t, r, device.Host(), there.ID(), 777),
						toward(t, r, here, device.ID{}, 555),
						toward(t, r, sim, there.ID(), 300_000),
						toward(t, r, here, there.ID(), 0),
					}
					got := bring(t, p, at(there, device.Host()), ts...)
					transporttest.Same(t, ts, got.Tensors)
					require.Equal(t, uint64(4*(n+1<<14+777+300_000)), p.Dialed.Lanes()[0].Sent-before)
					require.Equal(t, p.Dialed.Lanes()[0].Sent, p.Served.Lanes()[0].Received)
					got.Release()
					for _, x := range ts {
						if x.Buf != nil {
							release(t, x)
						}
					}
				}
			})
		})
	}
}

func TestWhatWasSentMayBeChangedAndReleasedAtOnce(t *testing.T) {
	both(t, func(t *testing.T, late bool) {
		leak.Check(t)
		p, here, there := cudaPair(t, late)
		warm(t, p, here, there)
		r := rand.New(rand.NewPCG(5, 6))
		for range 20 {
			x := toward(t, r, here, there.ID(), 1<<15)
			want := transporttest.Contents(t, x)
			a, b := p.Stream(t)
			require.NoError(t, a.Send(p.C, &transport.Message{Tensors: []transport.Tensor{x}}), "a small one goes before it is fetched")
			require.NoError(t, here.Upload(x.Buf, 0, make([]byte, x.Buf.Len())))
			release(t, x)
			got, err := b.Recv(p.C, at(there))
			require.NoError(t, err)
			require.Equal(t, want, transporttest.Contents(t, got.Tensors[0]))
			got.Release()
			a.Reset(nil)
			b.Reset(nil)
		}
	})
}

func TestWhatNobodyFetchesDoesNotKeepOthersFromGoingOn(t *testing.T) {
	leak.Check(t)
	p, here, there := cudaPair(t, false)
	warm(t, p, here, there)
	r := rand.New(rand.NewPCG(7, 8))
	x := toward(t, r, here, there.ID(), 1<<16) // 256 KiB
	var wg sync.WaitGroup
	c, cancel := context.WithCancel(p.C)
	var streams []transport.Stream
	for range 40 { // more than the outbox holds
		a, b := p.Stream(t)
		streams = append(streams, a, b)
		wg.Go(func() { _ = a.Send(c, &transport.Message{Tensors: []transport.Tensor{x}}) })
	}
	big := toward(t, r, here, there.ID(), 5<<18)
	got := bring(t, p, at(there), big)
	transporttest.Same(t, []transport.Tensor{big}, got.Tensors)
	got.Release()
	for k := 1; k < len(streams)/2; k += 2 { // some are fetched after all
		m, err := streams[k].Recv(p.C, at(there))
		require.NoError(t, err)
		m.Release()
	}
	cancel()
	wg.Wait()
	for _, s := range streams {
		s.Reset(nil)
	}
	got = bring(t, p, at(there), big)
	got.Release()
	release(t, big)
	release(t, x)
}

func TestAPlaceThatFailsLeavesTheLaneUsable(t *testing.T) {
	leak.Check(t)
	p, here, there := cudaPair(t, true)
	warm(t, p, here, there)
	r := rand.New(rand.NewPCG(7, 8))
	for _, n := range []int{1 << 14, 1 << 20} { // it comes before it is fetched, and after
		x := toward(t, r, here, there.ID(), n)
		nowhere := toward(t, r, here, device.CUDA(7), 8)
		beside := toward(t, r, device.Host(), device.ID{}, 1<<15)
		a, b := p.Stream(t)
		sent := make(chan error, 1)
		go func() { sent <- a.Send(p.C, &transport.Message{Tensors: []transport.Tensor{x, beside, nowhere}}) }()
		_, err := b.Recv(p.C, at(there, device.Host()))
		require.ErrorIs(t, err, device.ErrNoDevice)
		b.Reset(err)
		<-sent
		a.Reset(nil)
		got := bring(t, p, at(there), x)
		transporttest.Same(t, []transport.Tensor{x}, got.Tensors)
		got.Release()
		for _, y := range []transport.Tensor{x, nowhere, beside} {
			release(t, y)
		}
	}
}

func TestALaneWithoutACommonGPUSaysSoAndOthersServe(t *testing.T) {
	leak.Check(t)
	c := ptx.Config{Host: new(ptx.Host)}
	here, there := ptxtest.GPU(t, device.CUDA(0), c), ptxtest.GPU(t, device.CUDA(1), c)
	p := transporttest.Link(t, func(t testing.TB) (dialer, listener transport.Network) {
		return network(t, transport.Config{Devices: []device.Device{here}}), network(t, transport.Config{Devices: []device.Device{there}})
	})
	require.Contains(t, p.Dialed.Lanes()[0].Why, "the peer uses other accelerators")
	x := toward(t, rand.New(rand.NewPCG(1, 1)), here, there.ID(), 1<<16)
	for n := range uint64(3) {
		require.Equal(t, n, p.Dialed.Lanes()[0].Passed)
		got := bring(t, p, at(there), x)
		transporttest.Same(t, []transport.Tensor{x}, got.Tensors)
		got.Release()
	}
	require.Zero(t, p.Served.Lanes()[0].Passed, "it sent nothing")
	release(t, x)
}

func TestMemoryThatThePeerCannotOpenLeavesTensorsToTheOtherLanes(t *testing.T) {
	leak.Check(t)
	here := ptxtest.GPU(t, device.CUDA(0), ptx.Config{UUID: "GPU-1"}) // one GPU by name, but of two hosts: as if a container kept them apart
	there := ptxtest.GPU(t, device.CUDA(1), ptx.Config{UUID: "GPU-1"})
	p := transporttest.Link(t, func(t testing.TB) (dialer, listener transport.Network) {
		return network(t, transport.Config{Devices: []device.Device{here}}), network(t, transport.Config{Devices: []device.Device{there}})
	})
	x := toward(t, rand.New(rand.NewPCG(1, 1)), here, there.ID(), 1<<16)
	eventually(t, func() bool {
		got := bring(t, p, at(there), x)
		transporttest.Same(t, []transport.Tensor{x}, got.Tensors)
		got.Release()
		return p.Dialed.Lanes()[0].Why != ""
	})
	require.Contains(t, p.Dialed.Lanes()[0].Why, "the peer cannot open memory of cuda:0")
	require.Contains(t, p.Served.Lanes()[0].Why, "no memory of this host has the handle")
	require.Zero(t, p.Dialed.Lanes()[0].Sent)
	release(t, x)
}
