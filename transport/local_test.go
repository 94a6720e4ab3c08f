//go:build linux

package transport_test

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/transport"
	"github.com/weft-project/weft/transport/internal/transporttest"
)

func onLocal(t testing.TB) (dialer, listener transport.Network) {
	cfg := transport.Config{Lanes: []string{transport.LaneLocal}}
	return network(t, cfg), network(t, cfg)
}

// localPair is a link with the local lane up.
func localPair(t testing.TB) *transporttest.Pair {
	p := transporttest.Link(t, onLocal)
	for _, l := range []transport.Link{p.Dialed, p.Served} {
		require.Equal(t, transport.LaneLocal, l.Lanes()[0].Name)
		require.Empty(t, l.Lanes()[0].Why)
	}
	return p
}

func TestTheLocalLaneIsANetwork(t *testing.T) { transporttest.Run(t, onLocal) }

// The writer may find the socket closed before the reader has read why.
func TestAnOrderlyCloseIsNeverTakenForALoss(t *testing.T) {
	leak.Check(t)
	for range 50 {
		p := transporttest.Link(t, onLocal)
		here, _ := p.Stream(t)
		sent := make(chan error, 1)
		go func() {
			for {
				if err := here.Send(p.C, &transport.Message{}); err != nil {
					sent <- err
					return
				}
			}
		}()
		require.NoError(t, p.Served.Close("done"))
		<-p.Dialed.Done()
		require.ErrorIs(t, <-sent, transport.ErrPeerClosed)
		require.ErrorIs(t, p.Dialed.Err(), transport.ErrPeerClosed)
	}
}

// send brings tensors to the other end of a stream of their own.
func send(t testing.TB, p *transporttest.Pair, ts ...transport.Tensor) *transport.Message {
	here, there := p.Stream(t)
	require.NoError(t, here.Send(p.C, &transport.Message{Tensors: ts}))
	got, err := there.Recv(p.C, nil)
	require.NoError(t, err)
	here.Reset(nil)
	there.Reset(nil)
	return got
}

func big(t testing.TB, d device.Device) transport.Tensor {
	return transporttest.Tensor(t, rand.New(rand.NewPCG(1, 2)), d, device.Float32, 1<<18)
}

func release(t testing.TB, x transport.Tensor) { require.NoError(t, x.Buf.Release()) }

// eventually waits for what the peer does on its own.
func eventually(t testing.TB, ok func() bool) {
	require.Eventually(t, ok, 20*time.Second, time.Millisecond)
}

func TestALargeTensorIsLentAndNotCopied(t *testing.T) {
	leak.Check(t)
	p := localPair(t)
	x := big(t, device.Host())
	got := send(t, p, x)
	y := got.Tensors[0]
	require.True(t, y.Buf.ReadOnly())
	transporttest.Same(t, []transport.Tensor{x}, got.Tensors)
	require.False(t, x.Buf.Exclusive(), "what is lent is not to be written")
	mine, err := x.Buf.Host()
	require.NoError(t, err)
	mine[5]++ // as nobody should
	require.Equal(t, mine[5], transporttest.Contents(t, y)[5], "it is the same memory")
	got.Release()
	eventually(t, x.Buf.Exclusive)
	require.Equal(t, uint64(1<<20), p.Dialed.Lanes()[0].Sent>>20<<20)
	release(t, x)
}

func TestWhatIsLentIsNotUsedAgainBeforeItIsBack(t *testing.T) {
	leak.Check(t)
	p := localPair(t)
	x := big(t, device.Host())
	want := transporttest.Contents(t, x)
	got := send(t, p, x)
	release(t, x)
	check := func() {
		for range 10 { // the pool would give the block at once
			b, err := device.Host().Alloc(1 << 20)
			require.NoError(t, err)
			defer b.Release()
			require.NoError(t, device.Host().Upload(b, 0, make([]byte, 1<<20)))
		}
		require.True(t, bytes.Equal(want, transporttest.Contents(t, got.Tensors[0])))
	}
	check()
	require.NoError(t, p.Dialed.Close("bye"))
	<-p.Served.Done()
	check() // also where the link is gone
	got.Release()
}

func TestALoanThatBelongsToNobodyComesBackByTheCollector(t *testing.T) {
	leak.Check(t)
	p := localPair(t)
	x := big(t, device.Host())
	func() { send(t, p, x).Tensors[0].Buf.Disown() }()
	eventually(t, func() bool { runtime.GC(); return x.Buf.Exclusive() })
	release(t, x)
}

func TestTensorsOfAllSizesAndDevicesTravelTogether(t *testing.T) {
	leak.Check(t)
	p := localPair(t)
	r := rand.New(rand.NewPCG(3, 4))
	sim := device.NewSim(device.SimConfig{})
	for _, n := range []int{1, 3, 80, 300, 2000} { // many need a table of their own
		ts := []transport.Tensor{big(t, device.Host()), {}, transporttest.Tensor(t, r, device.Host(), device.Float64, 0)}
		for i := range n {
			d := device.Device(device.Host())
			if i%7 == 3 {
				d = sim
			}
			x := transporttest.Tensor(t, r, d, device.Int32, r.IntN(50), r.IntN(50))
			x.Device = device.ID{}
			ts = append(ts, x)
			if i%max(3, n/10) == 0 {
				ts = append(ts, big(t, device.Host()))
			}
		}
		got := send(t, p, ts...)
		transporttest.Same(t, ts, got.Tensors)
		got.Release()
		for _, x := range ts {
			if x.Buf != nil {
				release(t, x)
			}
		}
	}
}

func TestATensorForAnotherDeviceIsCopiedThereAndGivenBackAtOnce(t *testing.T) {
	leak.Check(t)
	p := localPair(t)
	sim := device.NewSim(device.SimConfig{})
	x := big(t, device.Host())
	x.Device = sim.ID()
	here, there := p.Stream(t)
	require.NoError(t, here.Send(p.C, &transport.Message{Tensors: []transport.Tensor{x, x}}))
	got, err := there.Recv(p.C, func(id device.ID, n int) (*device.Buffer, error) { return sim.Alloc(n) })
	require.NoError(t, err)
	transporttest.Same(t, []transport.Tensor{x, x}, got.Tensors)
	eventually(t, x.Buf.Exclusive)
	got.Release()
	require.Zero(t, sim.Stats().Live)
	release(t, x)
	here.Reset(nil)
	there.Reset(nil)
}

func TestAPlaceThatFailsGivesAllLoansBack(t *testing.T) {
	leak.Check(t)
	p := localPair(t)
	x := big(t, device.Host())
	toSim := x
	toSim.Device = device.Sim(0)
	here, there := p.Stream(t)
	require.NoError(t, here.Send(p.C, &transport.Message{Tensors: []transport.Tensor{x, toSim, x}}))
	_, err := there.Recv(p.C, func(device.ID, int) (*device.Buffer, error) { return nil, device.ErrMemory })
	require.ErrorIs(t, err, device.ErrMemory)
	eventually(t, x.Buf.Exclusive)
	release(t, x)
	here.Reset(nil)
	there.Reset(nil)
}

func TestAMessageThatNobodyReceivesIsNotLentForEver(t *testing.T) {
	leak.Check(t)
	p := localPair(t)
	x := big(t, device.Host())
	here, there := p.Stream(t)
	require.NoError(t, here.Send(p.C, &transport.Message{Tensors: []transport.Tensor{x}}))
	there.Reset(nil)
	eventually(t, x.Buf.Exclusive)
	release(t, x)
	here.Reset(nil)
}

func TestALentTensorCanBeSentOn(t *testing.T) {
	leak.Check(t)
	p, q := localPair(t), localPair(t)
	x := big(t, device.Host())
	first := send(t, p, x)
	second := send(t, q, first.Tensors...)
	first.Release()
	eventually(t, x.Buf.Exclusive)
	transporttest.Same(t, []transport.Tensor{x}, second.Tensors)
	second.Release()
	release(t, x)
}
