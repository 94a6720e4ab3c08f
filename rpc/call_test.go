package rpc

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/transport"
	"github.com/weft-project/weft/transport/simnet"
)

var double = Define("double", func(_ context.Context, n int) (int, error) { return 2 * n, nil })

// hold ends with its context and then sends why on the channel that it was made with.
func holdFn(ended chan error) *Func[int, int] {
	return Define("hold", func(c context.Context, _ int) (int, error) {
		<-c.Done()
		ended <- c.Err()
		return 0, context.Cause(c)
	})
}

// gated answers 1 when gate is closed.
func gated(gate chan struct{}) *Func[int, int] {
	return Define("gated", func(c context.Context, _ int) (int, error) {
		select {
		case <-gate:
			return 1, nil
		case <-c.Done():
			return 0, context.Cause(c)
		}
	})
}

func TestEveryWayToCallGivesTheSameResultHereAndThere(t *testing.T) {
	for name, network := range map[string]func(int) transport.Network{"simnet": onSim(simnet.New(simnet.Config{})), "quic": nil} {
		t.Run(name, func(t *testing.T) {
			ws := world(t, 2, network, serve(double))
			c := ws[1].Context(t.Context())
			for _, to := range []string{"worker0", "worker1"} {
				n, err := double.Call(c, to, 4)
				require.NoError(t, err)
				require.Equal(t, 8, n)
				f := double.Async(c, to, 5)
				for range 2 {
					n, err = f.Wait(c)
					require.NoError(t, err)
					require.Equal(t, 10, n)
				}
				<-f.Done()
				r := double.Remote(c, to, 6)
				require.NoError(t, r.Ready(c))
				require.Equal(t, to, r.Owner())
				n, err = r.ToHere(c)
				require.NoError(t, err)
				require.Equal(t, 12, n)
				n, err = r.LocalValue(c)
				if to == "worker1" {
					require.NoError(t, err)
					require.Equal(t, 12, n)
				} else {
					require.ErrorIs(t, err, ErrNotOwner)
					require.ErrorContains(t, err, "the value is on worker0")
				}
				r.Release()
			}
		})
	}
}

func TestHundredsOfCallsAreInFlightTogether(t *testing.T) {
	var here atomic.Int32
	const calls = 300
	all := make(chan struct{})
	meet := Define("meet", func(c context.Context, n int) (int, error) {
		if here.Add(1) == calls {
			close(all)
		}
		select {
		case <-all:
			return n, nil
		case <-c.Done():
			return 0, c.Err()
		}
	})
	ws := sim(t, 3, serve(meet))
	var futures []*Future[int]
	for i := range calls {
		futures = append(futures, meet.Async(ws[i%3].Context(t.Context()), fmt.Sprintf("worker%d", i/3%3), i))
	}
	for i, f := range futures {
		n, err := f.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, i, n)
	}
}

func TestCallsNestOverWorkersAndComeBackToTheirCaller(t *testing.T) {
	var hop *Func[int, string]
	hop = Define("hop", func(c context.Context, ttl int) (string, error) {
		w, ok := FromContext(c)
		if !ok || ttl == 0 {
			return w.Name(), nil
		}
		rest, err := hop.Call(c, fmt.Sprintf("worker%d", (w.Rank()+1)%w.WorldSize()), ttl-1)
		return w.Name() + " " + rest, err
	})
	ws := sim(t, 3, serve(hop))
	s, err := hop.Call(ws[0].Context(t.Context()), "worker0", 5)
	require.NoError(t, err)
	require.Equal(t, "worker0 worker1 worker2 worker0 worker1 worker2", s)
}

func TestAHandlersContextCarriesItsWorkerThePassAndTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type seen struct {
			Worker    string
			Pass      uint64
			Recording bool
			Left      time.Duration
		}
		look := Define("look", func(c context.Context, _ int) (seen, error) {
			w, _ := FromContext(c)
			s := seen{Worker: w.Name(), Left: left(c), Recording: ctx.Recording(c)}
			if p, ok := ctx.From(c); ok {
				s.Pass = uint64(p.ID())
			}
			return s, nil
		})
		ws := sim(t, 2, func(i int, cfg *Config) {
			cfg.Functions = []Function{look}
			cfg.Timeout = []time.Duration{0, NoTimeout}[i]
		})
		got, err := look.Call(ws[0].Context(t.Context()), "worker1", 0)
		require.NoError(t, err)
		require.Equal(t, seen{"worker1", 0, false, 60 * time.Second}, got, "the default timeout")
		got, err = look.Call(ws[1].Context(t.Context()), "worker0", 0)
		require.NoError(t, err)
		require.Equal(t, seen{"worker0", 0, false, 0}, got, "none")
		c, cancel := context.WithTimeout(t.Context(), 100*time.Second)
		defer cancel()
		require.NoError(t, ws[0].Pass(c, func(c context.Context) error {
			p, _ := ctx.From(c)
			for _, to := range []string{"worker1", "worker0"} {
				got, err := look.Call(c, to, 0)
				require.NoError(t, err)
				require.Equal(t, seen{to, uint64(p.ID()), true, 100 * time.Second}, got, "the context's own deadline wins")
				got, err = look.Call(ctx.NoGrad(c), to, 0)
				require.NoError(t, err)
				require.False(t, got.Recording)
			}
			return nil
		}))
	})
}

func TestACallThatTakesTooLongTimesOutExactlyThenAndIsCancelledAtTheCallee(t *testing.T) {
	for name, limit := range map[string]time.Duration{"default": 0, "configured": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan error, 1)
				hold := holdFn(ended)
				ws, _ := simWith(t, 2, simnet.Config{MinDelay: time.Millisecond}, func(_ int, cfg *Config) {
					cfg.Functions, cfg.Timeout = []Function{hold, double}, limit
				})
				start := time.Now()
				_, err := hold.Call(ws[0].Context(t.Context()), "worker1", 0)
				want := limit
				if limit == 0 {
					want = 60 * time.Second
				}
				require.Equal(t, want, time.Since(start))
				require.ErrorIs(t, err, ErrTimeout)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorContains(t, err, "worker0: hold on worker1")
				require.Error(t, <-ended)
				require.LessOrEqual(t, time.Since(start), want+time.Millisecond)
				n, err := double.Call(ws[0].Context(t.Context()), "worker1", 1)
				require.NoError(t, err)
				require.Equal(t, 2, n)
			})
		})
	}
}

func TestTheContextsDeadlineBeatsTheDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		hold := holdFn(ended)
		ws := sim(t, 2, serve(hold))
		c, cancel := context.WithTimeout(ws[0].Context(t.Context()), 90*time.Second)
		defer cancel()
		start := time.Now()
		err := hold.Remote(c, "worker1", 0).Ready(t.Context())
		require.Equal(t, 90*time.Second, time.Since(start))
		require.ErrorIs(t, err, ErrTimeout)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		<-ended
		synctest.Wait()
		require.Zero(t, ws[1].Owned(), "a value that never was is not kept")
	})
}

func TestCancellingACallCancelsItAtOnceOnBothSides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		hold := holdFn(ended)
		ws := sim(t, 2, serve(hold))
		c, cancel := context.WithCancelCause(ws[0].Context(t.Context()))
		f := hold.Async(c, "worker1", 0)
		synctest.Wait()
		start := time.Now()
		why := errors.New("changed my mind")
		cancel(why)
		_, err := f.Wait(t.Context())
		require.ErrorIs(t, err, why)
		require.ErrorIs(t, <-ended, context.Canceled)
		require.Zero(t, time.Since(start))
	})
}

func TestWaitingForAFutureEndsWithItsOwnContextAndTheCallGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		slow := gated(gate)
		ws := sim(t, 2, serve(slow))
		f := slow.Async(ws[0].Context(t.Context()), "worker1", 0)
		c, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := f.Wait(c)
		require.ErrorIs(t, err, ErrTimeout)
		close(gate)
		n, err := f.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, n)
	})
}

func TestErrorsKeepTheirKindAndTheirOriginOverTwoHops(t *testing.T) {
	sentinels := append([]error{}, portable...)
	fail := Define("fail", func(_ context.Context, i int) (int, error) {
		if i == len(sentinels) {
			return 0, errors.New("one of mine")
		}
		return 0, fmt.Errorf("here: %w", sentinels[i])
	})
	relay := Define("relay", func(c context.Context, i int) (int, error) { return fail.Call(c, "worker2", i) })
	ws := sim(t, 3, serve(fail, relay))
	c := ws[0].Context(t.Context())
	for i := range len(sentinels) + 1 {
		for _, call := range []func() (int, error){
			func() (int, error) { return fail.Call(c, "worker2", i) },
			func() (int, error) { return relay.Call(c, "worker1", i) },
		} {
			_, err := call()
			var remote *RemoteError
			require.ErrorAs(t, err, &remote)
			require.Equal(t, "worker2", remote.Worker)
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, "worker0", e.Worker)
			for k, s := range sentinels {
				if i < len(sentinels) {
					require.Equal(t, errors.Is(ctx.AsTimeout(sentinels[i]), s), errors.Is(err, s), "%v: %v", err, s)
				} else {
					require.NotErrorIs(t, err, sentinels[k])
					require.ErrorContains(t, err, "one of mine")
				}
			}
		}
	}
}

func TestAPanicIsAnErrorOfThatCallAloneAndItsStackIsInTheLogThere(t *testing.T) {
	for name, boom := range map[string]func(){
		"value": func() { panic("kaboom") },
		"error": func() { var m map[string]int; m["kaboom"] = 1 }, //nolint:staticcheck // the case
		"nil":   func() { panic(nil) },                            //nolint:govet // the case
	} {
		t.Run(name, func(t *testing.T) {
			var logs journal
			explode := Define("explode", func(context.Context, int) (int, error) { boom(); return 0, nil })
			gate := make(chan struct{})
			slow := gated(gate)
			ws := sim(t, 2, func(_ int, cfg *Config) {
				cfg.Functions, cfg.Logger = []Function{explode, slow}, logs.logger()
			})
			c := ws[0].Context(t.Context())
			other := slow.Async(c, "worker1", 0)
			_, err := explode.Call(c, "worker1", 0)
			require.ErrorIs(t, err, ErrPanic)
			require.ErrorContains(t, err, "worker1")
			require.Contains(t, logs.String(), "call_test.go")
			require.Equal(t, 1, logs.count("function=explode"))
			require.ErrorIs(t, explode.Remote(c, "worker1", 0).Ready(c), ErrPanic)
			close(gate)
			n, err := other.Wait(c)
			require.NoError(t, err)
			require.Equal(t, 1, n)
		})
	}
}

func TestAFunctionThatEndsItsGoroutineFailsItsCallAtOnce(t *testing.T) {
	quit := Define("quit", func(context.Context, int) (int, error) { runtime.Goexit(); return 0, nil })
	ws := sim(t, 2, serve(quit, double))
	c := ws[0].Context(t.Context())
	_, err := quit.Call(c, "worker1", 0)
	require.ErrorIs(t, err, transport.ErrReset)
	_, err = double.Call(c, "worker1", 0)
	require.NoError(t, err)
}

func TestWrongCallsFailWithAnErrorThatTellsWhatIsWrong(t *testing.T) {
	ws := sim(t, 2, func(i int, cfg *Config) { cfg.Functions = [][]Function{nil, {addFn}}[i] })
	c := ws[0].Context(t.Context())
	_, err := double.Call(c, "worker1", 1)
	require.ErrorIs(t, err, ErrNotServed)
	require.ErrorContains(t, err, `"double"; list it in the rpc.Config of worker1`)
	_, err = double.Call(c, "nobody", 1)
	require.ErrorIs(t, err, ErrUnknownWorker)
	require.ErrorContains(t, err, "[worker0 worker1]")
	_, err = double.Call(t.Context(), "worker1", 1)
	require.ErrorIs(t, err, ErrNoWorker)
	_, err = double.Async(t.Context(), "worker1", 1).Wait(t.Context())
	require.ErrorIs(t, err, ErrNoWorker)
	require.ErrorIs(t, double.Remote(t.Context(), "worker1", 1).Ready(t.Context()), ErrNoWorker)
	require.ErrorIs(t, double.Remote(c, "nobody", 1).Ready(c), ErrUnknownWorker)
	_, err = addFn.Call(c, "worker1", pair{autodiff.Rand(2, 3), autodiff.Rand(3, 2)})
	var remote *RemoteError
	require.ErrorAs(t, err, &remote)
	require.Equal(t, "worker1", remote.Worker)
	require.ErrorContains(t, err, "(2, 3)")
	require.ErrorContains(t, err, "(3, 2)")
	_, err = addFn.Call(c, "worker1", pair{autodiff.Rand(2), autodiff.New([]float64{1, 2})})
	require.ErrorContains(t, err, "worker1")
	require.ErrorContains(t, err, "float64")
	require.True(t, errors.Is(err, autodiff.ErrDtype) || errors.Is(err, kernels.ErrOperands), "%v", err)
	// The same name with other types on the two sides.
	other := Define("add", func(_ context.Context, in struct{ A string }) (string, error) { return in.A, nil })
	_, err = other.Call(c, "worker1", struct{ A string }{"x"})
	require.ErrorIs(t, err, ErrArguments)
}

func TestTheArgumentsOfAnAsyncCallAreReadBeforeItReturns(t *testing.T) {
	take := Define("take", func(_ context.Context, in map[string]*autodiff.Tensor) (int, error) { return len(in), nil })
	ws := sim(t, 2, serve(take))
	in := map[string]*autodiff.Tensor{"x": autodiff.Rand(2)}
	f := take.Async(ws[0].Context(t.Context()), "worker1", in)
	clear(in)
	n, err := f.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

func TestCallsFromManyWorkersAtOnceFindTheirWay(t *testing.T) {
	who := Define("who", func(c context.Context, from string) (string, error) {
		w, _ := FromContext(c)
		return from + ">" + w.Name(), nil
	})
	ws := sim(t, 4, serve(who))
	var wg sync.WaitGroup
	for _, from := range ws {
		for _, to := range ws {
			for range 10 {
				wg.Go(func() {
					s, err := who.Call(from.Context(t.Context()), to.Name(), from.Name())
					if err != nil || s != from.Name()+">"+to.Name() {
						t.Errorf("%s to %s: %q, %v", from.Name(), to.Name(), s, err)
					}
				})
			}
		}
	}
	wg.Wait()
}
