package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/transport"
	"github.com/weft-project/weft/transport/simnet"
)

// losses loses the first messages of some kinds, for each kind and pair of workers, or the answers
// to them.
type losses struct {
	mu    sync.Mutex
	times map[uint8]int
	seen  map[flow]int
}

type flow struct {
	kind     uint8
	from, to string
}

func (l *losses) set(times map[uint8]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.times, l.seen = times, map[flow]int{}
}

func (l *losses) drop(from, to string, m *transport.Message) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.times[m.Kind]
	if n == 0 {
		return false
	}
	key := flow{m.Kind, from, to}
	l.seen[key]++
	return l.seen[key] <= n
}

// lost says how many messages of a kind were lost.
func (l *losses) lost(kind uint8) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, seen := range l.seen {
		if key.kind == kind {
			n += min(l.times[kind], seen)
		}
	}
	return n
}

// goneWithin waits until no worker has a part of a pass, and says how long that took.
func goneWithin(t *testing.T, ws []*Worker, most time.Duration) time.Duration {
	t.Helper()
	start := time.Now()
	for {
		synctest.Wait()
		left := 0
		for _, w := range ws {
			left += len(w.Passes())
		}
		if left == 0 {
			return time.Since(start)
		}
		require.Less(t, time.Since(start), most, "%d parts of passes are left", left)
		time.Sleep(100 * time.Millisecond)
	}
}

// along passes a call on from worker to worker; the last doubles.
func along() *Func[onward, *autodiff.Tensor] {
	var f *Func[onward, *autodiff.Tensor]
	f = Define("along", func(c context.Context, in onward) (*autodiff.Tensor, error) {
		if len(in.To) == 0 {
			return autodiff.Scale(in.X, 2), nil
		}
		return f.Call(c, in.To[0], onward{in.To[1:], in.X})
	})
	return f
}

type onward struct {
	To []string
	X  *autodiff.Tensor
}

// PyTorch's test_context_cleanup_tensor_with_grad on its faulty agent.
func TestPassesAreCleanedUpAlthoughTheFirstThreeMessagesOfEveryKindAreLost(t *testing.T) {
	const all, lease = 1 << 30, 30 * time.Second
	for name, k := range map[string]struct {
		lose map[uint8]int
		most time.Duration
	}{
		"clean-ups":                             {map[uint8]int{wire.KindCleanup: 3}, lease / 3},
		"all requests":                          {map[uint8]int{wire.KindCleanup: 3, wire.KindRenew: 3, wire.KindAbort: 3, wire.KindRefs: 3}, 20 * time.Second},
		"answers":                               {map[uint8]int{wire.KindReply: 3}, time.Second},
		"clean-ups for ever":                    {map[uint8]int{wire.KindCleanup: all}, lease/3 + time.Second},
		"clean-ups for ever and renewals":       {map[uint8]int{wire.KindCleanup: all, wire.KindRenew: 3}, lease + time.Second},
		"clean-ups and renewals, both for ever": {map[uint8]int{wire.KindCleanup: all, wire.KindRenew: all}, 2 * lease},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, f := &losses{}, along()
				ws, _ := simWith(t, 3, simnet.Config{MinDelay: time.Millisecond, Drop: l.drop}, serve(f))
				before := device.Host().Stats().Live
				x := autodiff.Rand(2).RequireGrad()
				require.NoError(t, ws[0].Pass(t.Context(), func(c context.Context) error {
					y, err := f.Call(c, "worker1", onward{[]string{"worker2"}, x})
					require.NoError(t, err)
					require.NoError(t, ctx.Backward(c, autodiff.Sum(y)))
					l.set(k.lose)
					return nil
				}))
				require.Empty(t, ws[0].Passes(), "here it is gone at once")
				t.Log("after ", goneWithin(t, ws, k.most))
				require.Equal(t, before, device.Host().Stats().Live)
				for _, w := range ws {
					require.NoError(t, w.Settle(t.Context()))
				}
				require.GreaterOrEqual(t, l.lost(wire.KindCleanup)+l.lost(wire.KindReply), 3)
				l.set(nil)
			})
		})
	}
}

func TestAllHearOfAFailureAlthoughTheFirstThreeMessagesAboutItAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &losses{}
		var goOn chan struct{}
		wait := func(x *autodiff.Tensor, do func() error) *autodiff.Tensor {
			one := autodiff.Ones(device.Float32, 2)
			autodiff.NewSink("trap", []*autodiff.Tensor{one}, []bool{true}, func([]*autodiff.Tensor) error { return do() })
			return autodiff.Mul(x, one)
		}
		fail := Define("fail", func(_ context.Context, x *autodiff.Tensor) (*autodiff.Tensor, error) {
			return wait(x, func() error { time.Sleep(time.Second); return errors.New("simulated") }), nil
		})
		stick := Define("stick", func(_ context.Context, x *autodiff.Tensor) (*autodiff.Tensor, error) {
			return wait(x, func() error { <-goOn; return nil }), nil
		})
		part := Define("part", func(c context.Context, x *autodiff.Tensor) (*autodiff.Tensor, error) {
			return stick.Call(c, "worker3", x)
		})
		goOn = make(chan struct{})
		ws, _ := simWith(t, 4, simnet.Config{MinDelay: time.Millisecond, Drop: l.drop}, serve(fail, stick, part))
		x := autodiff.Rand(2).RequireGrad()
		require.NoError(t, ws[0].Pass(t.Context(), func(c context.Context) error {
			a, err := fail.Call(c, "worker1", x)
			require.NoError(t, err)
			b, err := part.Call(c, "worker2", x)
			require.NoError(t, err)
			l.set(map[uint8]int{wire.KindAbort: 3})
			start := time.Now()
			err = ctx.Backward(c, autodiff.Sum(autodiff.Add(a, b)))
			var f *ctx.Failure
			require.ErrorAs(t, err, &f)
			require.Equal(t, "worker1", f.Worker)
			require.Less(t, time.Since(start), 2*time.Second, "the root need not wait for the others")
			require.Len(t, ws[2].Passes(), 1)
			require.Equal(t, 1, ws[2].Passes()[0].Backwards, "worker2 has not heard")
			time.Sleep(12 * time.Second)
			require.Zero(t, ws[2].Passes()[0].Backwards)
			close(goOn)
			synctest.Wait()
			require.Zero(t, ws[3].Passes()[0].Backwards)
			require.GreaterOrEqual(t, l.lost(wire.KindAbort), 9, "to three workers, by one at least")
			return nil
		}))
		goneWithin(t, ws, time.Second)
	})
}

func TestALostGradientEndsTheBackwardAtItsDeadlineOnAllWorkersAndTheNextOneWorks(t *testing.T) {
	for _, mode := range []ctx.Mode{ctx.Smart, ctx.Fast} {
		for what, kind := range map[string]uint8{"the gradients": wire.KindGradients, "the answer": wire.KindReply} {
			t.Run(fmt.Sprint(mode, "/", what), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l, f := &losses{}, along()
					ws, _ := simWith(t, 3, simnet.Config{MinDelay: time.Millisecond, Drop: l.drop}, serve(f))
					x := autodiff.Ones(device.Float64, 2).RequireGrad()
					require.NoError(t, ws[0].Pass(t.Context(), func(c context.Context) error {
						y, err := f.Call(c, "worker1", onward{[]string{"worker2"}, x})
						require.NoError(t, err)
						loss := autodiff.Sum(y)
						l.set(map[uint8]int{kind: 1})
						start := time.Now()
						soon, cancel := context.WithTimeout(c, 10*time.Second)
						defer cancel()
						err = ctx.BackwardWith(soon, ctx.Options{Mode: mode, RetainGraph: true}, loss)
						require.ErrorIs(t, err, ctx.ErrTimeout)
						require.LessOrEqual(t, time.Since(start), 10*time.Second)
						require.Greater(t, time.Since(start), 8*time.Second)
						var f *ctx.Failure
						require.ErrorAs(t, err, &f)
						l.set(nil)
						for _, w := range ws {
							require.NoError(t, w.Settle(c))
							require.Zero(t, w.Passes()[0].Backwards, w.Name())
						}
						require.NoError(t, ctx.BackwardWith(c, ctx.Options{Mode: mode}, loss))
						g, err := ctx.Gradients(c)
						require.NoError(t, err)
						v, err := autodiff.Values[float64](g[x])
						require.NoError(t, err)
						require.Equal(t, []float64{2, 2}, v)
						return nil
					}))
					goneWithin(t, ws, time.Second)
				})
			})
		}
	}
}
