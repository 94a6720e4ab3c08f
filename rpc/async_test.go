package rpc

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/transport/simnet"
)

// everyWay calls a function in each of the three ways.
func everyWay[In, Out any](t *testing.T, f *Func[In, Out], check func(t *testing.T, call func(c context.Context, to string, in In) (Out, error))) {
	for name, call := range map[string]func(c context.Context, to string, in In) (Out, error){
		"call":  f.Call,
		"async": func(c context.Context, to string, in In) (Out, error) { return f.Async(c, to, in).Wait(c) },
		"remote": func(c context.Context, to string, in In) (Out, error) {
			r := f.Remote(c, to, in)
			defer r.Release()
			return r.ToHere(c)
		},
	} {
		t.Run(name, func(t *testing.T) { check(t, call) })
	}
}

var errMine = errors.New("one of mine")

// asyncFunctions do what PyTorch's test_async_function_* do, under the same names;
// docs/pytorch-tests.md has them all.
var asyncFunctions = struct {
	simple, raise, wrong, ctor, chained, nested, multi, fanout *Func[int, int]
}{
	simple: DefineAsync("simple", func(c context.Context, n int) (*Future[int], error) { return double.Async(c, "worker2", n), nil }),
	raise:  DefineAsync("raise", func(context.Context, int) (*Future[int], error) { return nil, errMine }),
	wrong:  DefineAsync("wrong", func(context.Context, int) (*Future[int], error) { return nil, nil }), //nolint:nilnil // the case
	ctor: DefineAsync("ctor", func(_ context.Context, n int) (*Future[int], error) {
		p := NewPromise[int]("later")
		time.AfterFunc(time.Millisecond, func() { _ = p.Resolve(n + 1) })
		return p.Future(), nil
	}),
	chained: DefineAsync("chained", func(c context.Context, n int) (*Future[int], error) {
		return Then(double.Async(c, "worker2", n), func(n int) (int, error) { return n + 1, nil }), nil
	}),
	nested: DefineAsync("nested", func(c context.Context, n int) (*Future[int], error) {
		return ThenAsync(double.Async(c, "worker2", n), func(n int) (*Future[int], error) { return double.Async(c, "worker0", n), nil }), nil
	}),
	multi: DefineAsync("multi", func(c context.Context, n int) (*Future[int], error) {
		f := double.Async(c, "worker2", n)
		for range 5 {
			f = Then(f, func(n int) (int, error) { return n + 1, nil })
		}
		return f, nil
	}),
	fanout: DefineAsync("fanout", func(c context.Context, n int) (*Future[int], error) {
		var fs []*Future[int]
		for i := range n {
			fs = append(fs, double.Async(c, fmt.Sprintf("worker%d", i%3), i))
		}
		return Then(All(fs...), func(vs []int) (sum int, _ error) {
			for _, v := range vs {
				sum += v
			}
			return sum, nil
		}), nil
	}),
}

func TestAsyncFunctionsGiveTheirResultInEveryWayOfCalling(t *testing.T) {
	a := asyncFunctions
	ws := sim(t, 3, serve(double, a.simple, a.raise, a.wrong, a.ctor, a.chained, a.nested, a.multi, a.fanout))
	c := ws[0].Context(t.Context())
	for f, want := range map[*Func[int, int]]int{a.simple: 20, a.ctor: 11, a.chained: 21, a.nested: 40, a.multi: 25, a.fanout: 90} {
		everyWay(t, f, func(t *testing.T, call func(context.Context, string, int) (int, error)) {
			for _, to := range []string{"worker1", "worker0"} {
				n, err := call(c, to, 10)
				require.NoError(t, err, f.Name())
				require.Equal(t, want, n, f.Name())
			}
		})
	}
	everyWay(t, a.raise, func(t *testing.T, call func(context.Context, string, int) (int, error)) {
		_, err := call(c, "worker1", 0)
		require.ErrorContains(t, err, "one of mine")
	})
	everyWay(t, a.wrong, func(t *testing.T, call func(context.Context, string, int) (int, error)) {
		_, err := call(c, "worker1", 0)
		require.ErrorContains(t, err, "wrong returned neither a future nor an error")
	})
	owns(t, ws[1], 0)
}

func TestAPendingFutureEndsAtTheDeadlineAndItsContextWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contexts := make(chan context.Context, 3)
		never := DefineAsync("never", func(c context.Context, _ int) (*Future[int], error) {
			contexts <- c
			return NewPromise[int]("nothing").Future(), nil
		})
		ws, _ := simWith(t, 2, simnet.Config{MinDelay: time.Millisecond}, serve(never))
		c := ws[0].Context(t.Context())
		start := time.Now()
		_, err := never.Call(WithTimeout(c, time.Second), "worker1", 0)
		require.ErrorIs(t, err, ErrTimeout)
		require.Equal(t, time.Second, time.Since(start))
		<-(<-contexts).Done()
		cancelled, cancel := context.WithCancel(c)
		f := never.Async(cancelled, "worker1", 0)
		time.Sleep(time.Second)
		seen := <-contexts
		require.NoError(t, seen.Err(), "it lives while the future is pending")
		start = time.Now()
		cancel()
		_, err = f.Wait(c)
		require.ErrorIs(t, err, context.Canceled)
		<-seen.Done()
		require.Equal(t, time.Millisecond, time.Since(start))
		r := never.Remote(WithTimeout(c, time.Second), "worker1", 0)
		require.ErrorIs(t, r.Ready(c), ErrTimeout)
		r.Release()
		time.Sleep(time.Minute)
		require.Zero(t, ws[1].Owned())
	})
}

func TestNoGoroutineWaitsForAPendingFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		promises := make(chan *Promise[int], 100)
		later := DefineAsync("later", func(context.Context, int) (*Future[int], error) {
			p := NewPromise[int]("it")
			promises <- p
			return p.Future(), nil
		})
		ws := sim(t, 2, limited(1, 100, later, double))
		c := ws[0].Context(t.Context())
		var fs []*Future[int]
		for i := range 100 {
			fs = append(fs, later.Async(c, "worker1", i))
		}
		synctest.Wait()
		require.Len(t, promises, 100, "one at a time, and yet all are under way")
		running, queued := ws[1].serving.gate.Load()
		require.Zero(t, running+queued)
		for i := range 100 {
			require.NoError(t, (<-promises).Resolve(i))
		}
		got, err := WaitAll(c, fs...)
		require.NoError(t, err)
		require.Len(t, got, 100)
	})
}
