package process

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/disttest/workload"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/rpc"
)

// holding is a tensor for the callee to hold, as number N, until the call ends.
type holding struct {
	N int
	T *autodiff.Tensor
}

// arrived is what a callee tells its caller, so that the caller knows that the call is there.
var arrived struct {
	sync.Mutex
	wait func()
}

var (
	noted = rpc.Define("noted", func(context.Context, int) (struct{}, error) {
		arrived.Lock()
		defer arrived.Unlock()
		arrived.wait()
		return struct{}{}, nil
	})
	hold = rpc.Define("hold", func(c context.Context, in holding) (struct{}, error) {
		buf, err := in.T.Acquire()
		if err != nil {
			return struct{}{}, err
		}
		defer buf.Release()
		if _, err := noted.Call(c, "worker0", in.N); err != nil {
			return struct{}{}, err
		}
		<-c.Done()
		return struct{}{}, context.Cause(c)
	})
)

func TestKillingTheCalleeOfAHundredCallsFailsThemAllAndLeavesNothing(t *testing.T) {
	leak.Check(t)
	const calls = 100
	var before resources
	t.Run("world", func(t *testing.T) {
		var here sync.WaitGroup
		here.Add(calls)
		arrived.wait = here.Done
		to := settle(t, workload.Place{Size: 2}, noted)
		c, cancel := context.WithTimeout(to.Context(t.Context()), patience)
		defer cancel()
		before = look(t)
		tensors := make([]*autodiff.Tensor, calls)
		futures := make([]*rpc.Future[struct{}], calls)
		for i := range futures {
			tensors[i] = autodiff.Ones(device.Float32, 16<<10+i) // 64 KiB and more
			futures[i] = hold.Async(c, "worker1", holding{i, tensors[i]})
		}
		here.Wait()
		t.Logf("under way: %v", look(t))
		killed := time.Now()
		to.procs[1].Kill()
		for _, f := range futures {
			_, err := f.Wait(c)
			require.ErrorIs(t, err, rpc.ErrPeerLost)
			require.ErrorContains(t, err, "worker1")
		}
		took := time.Since(killed)
		t.Logf("all %d calls failed %v after the kill", calls, took)
		require.Less(t, took, 15*time.Second) // a silent peer's time at most; over lane local it is milliseconds
		require.Empty(t, to.Passes())
		require.Zero(t, to.Owned())
	})
	require.Eventually(t, func() bool { return look(t).leavesNothing(before) }, 5*time.Second, 10*time.Millisecond,
		"before the calls there were %v, and after the end of the world %v", before, lateLook{t})
}
