//go:build linux

package transport_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/gpumem"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/transport"
	"github.com/weft-project/weft/transport/internal/transporttest"
)

// spoil leaves a fault as a kernel does that finds something wrong.
func spoil(t testing.TB, d *device.Accelerator) gpumem.Fault {
	f, g := gpumem.Fault{Code: 3, Value: -4, At: 5, N: 6}, d.Memory().(*gpumem.GPU)
	require.NoError(t, g.Upload(g.FaultAddr(), device.Bytes([]int64{int64(f.Code), f.Value, ^f.At, f.N})))
	return f
}

func TestATensorOfAGPUWhereAKernelFoundSomethingWrongDoesNotLeaveIt(t *testing.T) {
	for name, lanes := range map[string][]string{"cuda": nil, "local": {transport.LaneLocal}, "bulk": {transport.LaneBulk}, "quic": {transport.LaneQUIC}} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, late bool) {
				leak.Check(t)
				p, here, there := faultPair(t, late, lanes)
				r := rand.New(rand.NewPCG(3, 4))
				for _, n := range []int{1 << 14, 1 << 20} { // it comes before it is fetched, and after
					x := toward(t, r, here, there.ID(), n)
					for range 30 {
						want := spoil(t, here)
						a, b := p.Stream(t)
						received := make(chan error, 1)
						go func() {
							_, err := b.Recv(p.C, at(there))
							b.Reset(err)
							received <- err
						}()
						var found *gpumem.FaultError
						err := a.Send(p.C, &transport.Message{Tensors: []transport.Tensor{x}})
						require.ErrorAs(t, err, &found, "also where the peer is quick to give the stream up")
						require.Equal(t, want, found.Fault)
						require.ErrorContains(t, err, "cuda:0")
						a.Reset(err)
						require.ErrorIs(t, <-received, transport.ErrReset)
					}
					got := bring(t, p, at(there), x)
					transporttest.Same(t, []transport.Tensor{x}, got.Tensors)
					got.Release()
					release(t, x)
				}
			})
		})
	}
}

// faultPair is a link over a lane that is in use.
func faultPair(t testing.TB, late bool, lanes []string) (p *transporttest.Pair, here, there *device.Accelerator) {
	if lanes == nil {
		p, here, there = cudaPair(t, late)
		warm(t, p, here, there)
		return p, here, there
	}
	here, there = oneGPU(t, ptx.Config{}, late)
	return transporttest.Link(t, func(t testing.TB) (dialer, listener transport.Network) {
		return network(t, transport.Config{Lanes: lanes}), network(t, transport.Config{Lanes: lanes})
	}), here, there
}

func TestAReceiversOwnFaultIsNotTheSendersAndIsStillTold(t *testing.T) {
	both(t, func(t *testing.T, late bool) {
		leak.Check(t)
		p, here, there := cudaPair(t, late)
		warm(t, p, here, there)
		x := toward(t, rand.New(rand.NewPCG(5, 4)), here, there.ID(), 1<<16)
		want := spoil(t, there)
		got := bring(t, p, at(there), x)
		var found *gpumem.FaultError
		require.ErrorAs(t, there.Download(make([]byte, 4), got.Tensors[0].Buf, 0), &found)
		require.Equal(t, want, found.Fault)
		transporttest.Same(t, []transport.Tensor{x}, got.Tensors)
		got.Release()
		release(t, x)
	})
}
