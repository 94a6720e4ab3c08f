package rpc

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAPromiseIsResolvedOnce(t *testing.T) {
	p := NewPromise[int]("the answer")
	f := p.Future()
	select {
	case <-f.Done():
		require.Fail(t, "done too early")
	default:
	}
	require.NoError(t, p.Resolve(42))
	require.ErrorIs(t, p.Resolve(43), ErrResolved)
	err := p.Fail(errMine)
	require.ErrorIs(t, err, ErrResolved)
	require.ErrorContains(t, err, "the answer")
	<-f.Done()
	for range 2 {
		n, err := f.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, 42, n)
	}
	bad := NewPromise[int]("bad")
	require.NoError(t, bad.Fail(errMine))
	for range 2 {
		_, err := bad.Future().Wait(t.Context())
		require.ErrorIs(t, err, errMine, "the same error twice")
	}
	none := NewPromise[int]("none")
	require.NoError(t, none.Fail(nil))
	_, err = none.Future().Wait(t.Context())
	require.ErrorContains(t, err, "none failed without an error")
}

func TestWhatFollowsAFutureGetsItsValueOrItsError(t *testing.T) {
	for name, when := range map[string]func(p *Promise[int], resolve func() error, follow func()){
		"before": func(_ *Promise[int], resolve func() error, follow func()) { follow(); _ = resolve() },
		"after":  func(_ *Promise[int], resolve func() error, follow func()) { _ = resolve(); follow() },
	} {
		t.Run(name, func(t *testing.T) {
			c := t.Context()
			p := NewPromise[int]("p")
			var text *Future[string]
			var order []string
			when(p, func() error { return p.Resolve(2) }, func() {
				p.Future().OnDone(func(n int, err error) { order = append(order, "first") })
				text = Then(p.Future(), func(n int) (string, error) { order = append(order, "second"); return "two"[:n], nil })
			})
			s, err := text.Wait(c)
			require.NoError(t, err)
			require.Equal(t, "tw", s)
			require.Equal(t, []string{"first", "second"}, order)
			failed := NewPromise[int]("f")
			var skipped, handled, next *Future[int]
			when(failed, func() error { return failed.Fail(errMine) }, func() {
				skipped = Then(failed.Future(), func(int) (int, error) { panic("must not run") })
				handled = Handle(skipped, func(n int, err error) (int, error) { return 7, nil })
				next = ThenAsync(failed.Future(), func(int) (*Future[int], error) { panic("must not run") })
			})
			_, err = skipped.Wait(c)
			require.ErrorIs(t, err, errMine)
			_, err = next.Wait(c)
			require.ErrorIs(t, err, errMine)
			n, err := handled.Wait(c)
			require.NoError(t, err)
			require.Equal(t, 7, n)
		})
	}
	done := NewPromise[int]("done")
	require.NoError(t, done.Resolve(1))
	_, err := Then(done.Future(), func(int) (int, error) { panic("kaboom") }).Wait(t.Context())
	require.ErrorIs(t, err, ErrPanic)
	_, err = ThenAsync(done.Future(), func(int) (*Future[int], error) { return nil, nil }).Wait(t.Context()) //nolint:nilnil // the case
	require.ErrorContains(t, err, "neither a future nor an error")
	_, err = ThenAsync(done.Future(), func(int) (*Future[int], error) { return nil, errMine }).Wait(t.Context())
	require.ErrorIs(t, err, errMine)
}

func TestWaitingForAllEndsWithTheFirstErrorAlthoughOneIsStuck(t *testing.T) {
	gate := make(chan struct{})
	slow := gated(gate)
	fail := Define("fail", func(context.Context, int) (int, error) { return 0, errMine })
	ws := sim(t, 2, serve(slow, fail))
	c := ws[0].Context(t.Context())
	stuck := slow.Async(c, "worker1", 0)
	_, err := WaitAll(c, stuck, fail.Async(c, "worker1", 0))
	require.ErrorContains(t, err, "one of mine")
	close(gate)
	vs, err := WaitAll(c, stuck, slow.Async(c, "worker1", 0))
	require.NoError(t, err)
	require.Equal(t, []int{1, 1}, vs)
	vs, err = WaitAll[int](c)
	require.NoError(t, err)
	require.Empty(t, vs)
}

func TestWaitingForAllEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := WaitAll(c, NewPromise[int]("a").Future(), NewPromise[int]("b").Future())
		require.ErrorIs(t, err, ErrTimeout)
		require.ErrorContains(t, err, "2 futures")
	})
}

func TestAFutureCannotTravel(t *testing.T) {
	type holder struct{ F *Future[int] }
	for _, f := range []Function{
		Define("in", func(context.Context, holder) (int, error) { return 0, nil }),
		Define("out", func(context.Context, int) (*Future[int], error) { return nil, nil }), //nolint:nilnil // never called
	} {
		_, err := f.served()
		require.ErrorIs(t, err, ErrArguments)
		require.ErrorContains(t, err, "cannot travel; declare the function with DefineAsync")
	}
}

func TestAFunctionMayBeCalledFromWhatFollowsACall(t *testing.T) {
	ws := sim(t, 2, serve(double))
	c := ws[0].Context(t.Context())
	f := ThenAsync(double.Async(c, "worker1", 1), func(n int) (*Future[int], error) { return double.Async(c, "worker1", n), nil })
	n, err := f.Wait(c)
	require.NoError(t, err)
	require.Equal(t, 4, n)
	_, err = double.Async(c, "nobody", 1).Wait(c)
	again := Then(double.Async(c, "nobody", 1), func(n int) (int, error) { return n, nil })
	_, err2 := again.Wait(c)
	require.Equal(t, err.Error(), err2.Error())
	require.True(t, errors.Is(err2, ErrUnknownWorker))
}

func TestAPanicOfACallbackIsLoggedAndTheOthersAreCalled(t *testing.T) {
	var logs journal
	before := slog.Default()
	slog.SetDefault(logs.logger())
	defer slog.SetDefault(before)
	p := NewPromise[int]("a value")
	got := 0
	p.Future().OnDone(func(int, error) { panic("oops") })
	p.Future().OnDone(func(n int, _ error) { got = n })
	require.NoError(t, p.Resolve(7))
	require.Equal(t, 7, got)
	p.Future().OnDone(func(int, error) { panic("again") })
	require.Equal(t, 2, logs.count("a callback panicked"))
	require.Contains(t, logs.String(), "a value")
	require.Contains(t, logs.String(), "future_test.go")
}
