package disttest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/rpc"
)

// trapsFn passes a call on along its route; every worker of it asks take in the backward, with its
// rank.
func trapsFn(take func(rank int) error) *rpc.Func[route, *autodiff.Tensor] {
	var f *rpc.Func[route, *autodiff.Tensor]
	f = rpc.Define("traps", func(c context.Context, in route) (*autodiff.Tensor, error) {
		me, _ := rpc.FromContext(c)
		x := trapped(in.A, func() error { return take(me.Rank()) })
		if len(in.To) == 0 {
			return x, nil
		}
		return f.Call(c, in.To[0], route{in.To[1:], x, in.B})
	})
	return f
}

// requireIdle checks that no worker has a backward under way, while the passes are still there.
func (w *world) requireIdle(t *testing.T) {
	t.Helper()
	for _, worker := range w.ws {
		require.NoError(t, worker.Settle(t.Context()))
	}
	synctest.Wait()
	for _, worker := range w.ws {
		for _, info := range worker.Passes() {
			require.Zero(t, info.Backwards, worker.Name())
		}
	}
}

// PyTorch's test_backward_autograd_engine_error, test_backward_python_udf_error and
// test_multiple_backward_with_errors.
func TestAnErrorAnywhereInAChainNamesItsWorkerAndEndsTheBackwardOnAll(t *testing.T) {
	var broken atomic.Int64
	f := trapsFn(func(rank int) error {
		if broken.Load() == int64(rank) {
			return errors.New("simulated error on backward pass")
		}
		return nil
	})
	bubble(t, 4, delays, func(t *testing.T, w *world) {
		x := param(1, 2)
		for _, mode := range []ctx.Mode{ctx.Smart, ctx.Fast} {
			w.pass(t, 0, func(c context.Context) {
				// over all workers, back over the root, and a second time
				loss := autodiff.Sum(must(f.Call(c, "worker1", route{[]string{"worker2", "worker0", "worker3", "worker1"}, x, ones(2)})))
				o := ctx.Options{Mode: mode, RetainGraph: true}
				for n := range int64(50) {
					broken.Store(n % 4)
					f := requireFailure(t, ctx.BackwardWith(c, o, loss), name(int(n%4)))
					require.Equal(t, "trap", f.Op)
					require.Equal(t, "simulated error on backward pass", f.Cause)
					w.requireIdle(t)
				}
				broken.Store(-1)
				requireGradients(t, current(c), nil)
				require.NoError(t, ctx.BackwardWith(c, o, loss))
				requireGradients(t, current(c), map[*autodiff.Tensor][]float64{x: {1, 1}})
			})
		}
	}, f)
}

func TestTheFirstOfSeveralErrorsIsTheOneThatAllHear(t *testing.T) {
	f := trapsFn(func(rank int) error {
		time.Sleep([]time.Duration{0, 2 * time.Second, time.Second, 3 * time.Second}[rank])
		return fmt.Errorf("simulated on %d", rank)
	})
	bubble(t, 4, delays, func(t *testing.T, w *world) {
		w.pass(t, 0, func(c context.Context) {
			sum := param(1, 2)
			for i := 1; i < 4; i++ { // beside each other
				sum = autodiff.Add(sum, must(f.Call(c, name(i), route{nil, param(1, 2), ones(2)})))
			}
			start := time.Now()
			f := requireFailure(t, ctx.Backward(c, autodiff.Sum(sum)), "worker2")
			require.Equal(t, "simulated on 2", f.Cause)
			require.Less(t, time.Since(start), 4*time.Second)
			time.Sleep(4 * time.Second) // of the bubble: nodes that run are not interrupted
			w.requireIdle(t)
		})
	}, f)
}

// PyTorch's test_backward_node_failure: the odd ranks die, and the backwards of the others fail.
// They do so here with their names.
func TestWhenEverySecondWorkerDiesTheBackwardsOfTheOthersFailAndNameThem(t *testing.T) {
	add := addFn()
	bubble(t, 4, delays, func(t *testing.T, w *world) {
		before := device.Host().Stats().Live
		var ready, over sync.WaitGroup
		dead := make(chan struct{})
		errs := make([]error, 4)
		for i, worker := range w.ws {
			ready.Add(1)
			over.Go(func() {
				errs[i] = worker.Pass(t.Context(), func(c context.Context) error {
					loss := autodiff.Sum(must(add.Call(c, name((i+1)%4), pair{param(1, 2), param(3, 4)})))
					ready.Done()
					<-dead
					if i%2 == 1 {
						return nil
					}
					c, cancel := context.WithTimeout(c, 5*time.Second)
					defer cancel()
					return ctx.Backward(c, loss)
				})
			})
		}
		ready.Wait()
		w.net.Kill(rpctest.Host(1))
		w.net.Kill(rpctest.Host(3))
		close(dead)
		over.Wait()
		for _, i := range []int{0, 2} {
			require.ErrorIs(t, errs[i], ctx.ErrPeerLost)
			require.ErrorContains(t, errs[i], name(i+1))
			requireFailure(t, errs[i], name(i+1))
		}
		time.Sleep(10 * time.Second) // of the bubble: the dead ones' passes are gone from the others
		for _, i := range []int{0, 2} {
			require.NoError(t, w.ws[i].Settle(t.Context()))
			require.Empty(t, w.ws[i].Passes())
		}
		require.NoError(t, w.ws[1].Close())
		require.NoError(t, w.ws[3].Close())
		require.Equal(t, before, device.Host().Stats().Live)
	}, add)
}

// PyTorch's test_backward_node_failure_python_udf: the last of a chain dies. The pass can still be
// used without it.
func TestAPassGoesOnWithoutAWorkerThatDiedAtTheEndOfAChain(t *testing.T) {
	var hold atomic.Bool
	var goOn chan struct{}
	f := trapsFn(func(rank int) error {
		if rank == 3 && hold.Load() {
			<-goOn
		}
		return nil
	})
	bubble(t, 4, delays, func(t *testing.T, w *world) {
		goOn = make(chan struct{})
		hold.Store(true)
		before := device.Host().Stats().Live
		x := param(1, 2)
		require.NoError(t, w.ws[0].Pass(t.Context(), func(c context.Context) error {
			loss := func(to ...string) *autodiff.Tensor {
				return autodiff.Sum(must(f.Call(c, "worker1", route{to, x, ones(2)})))
			}
			whole, part := loss("worker2", "worker3"), loss("worker2")
			failed := make(chan error)
			go func() { failed <- ctx.BackwardWith(c, ctx.Options{RetainGraph: true}, whole) }()
			time.Sleep(time.Second) // of the bubble: the gradients are at worker3
			w.net.Kill(rpctest.Host(3))
			close(goOn)
			err := <-failed
			require.ErrorIs(t, err, ctx.ErrPeerLost)
			require.ErrorContains(t, err, "worker3")
			for _, worker := range w.ws[:3] {
				require.NoError(t, worker.Settle(c))
				require.Len(t, worker.Passes(), 1)
				require.Zero(t, worker.Passes()[0].Backwards, worker.Name())
			}
			require.ErrorIs(t, ctx.BackwardWith(c, ctx.Options{RetainGraph: true}, whole), ctx.ErrPeerLost)
			require.NoError(t, ctx.Backward(c, part))
			requireGradients(t, current(c), map[*autodiff.Tensor][]float64{x: {1, 1}})
			require.NoError(t, ctx.Backward(c, loss("worker2")), "and with new calls")
			requireGradients(t, current(c), map[*autodiff.Tensor][]float64{x: {2, 2}})
			return nil
		}))
		for _, worker := range w.ws[:3] {
			require.NoError(t, worker.Settle(t.Context()))
		}
		synctest.Wait()
		for _, worker := range w.ws[:3] {
			require.Empty(t, worker.Passes(), worker.Name())
		}
		require.NoError(t, w.ws[3].Close())
		require.Equal(t, before, device.Host().Stats().Live)
	}, f)
}
