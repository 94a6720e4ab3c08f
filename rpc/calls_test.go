package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/transport/simnet"
)

func TestAWorkerIsCalledByItsRankAsByItsName(t *testing.T) {
	ws := sim(t, 2, serve(double))
	c := ws[0].Context(t.Context())
	everyWay(t, double, func(t *testing.T, call func(context.Context, string, int) (int, error)) {
		for rank := range 2 {
			n, err := call(c, Rank(rank), 4)
			require.NoError(t, err)
			require.Equal(t, 8, n)
		}
	})
	for _, to := range []string{Rank(2), Rank(-1), "#", "#x", "1"} {
		_, err := double.Call(c, to, 1)
		require.ErrorIs(t, err, ErrUnknownWorker, to)
	}
	_, err := double.Call(c, Rank(2), 1)
	require.ErrorContains(t, err, "rank 2 in a world of 2")
}

func TestAThousandLightCallsInARow(t *testing.T) {
	ws := sim(t, 2, serve(double))
	c := ws[0].Context(t.Context())
	for i := range 1000 {
		n, err := double.Call(c, "worker1", i)
		require.NoError(t, err)
		require.Equal(t, 2*i, n)
	}
}

func TestTwentyLayersOfNestedAsyncCalls(t *testing.T) {
	var layer *Func[int, int]
	layer = DefineAsync("layer", func(c context.Context, ttl int) (*Future[int], error) {
		if ttl == 0 {
			p := NewPromise[int]("the bottom")
			return p.Future(), p.Resolve(0)
		}
		w, _ := FromContext(c)
		below := layer.Async(c, Rank((w.Rank()+1)%w.WorldSize()), ttl-1)
		return Then(below, func(n int) (int, error) { return n + 1, nil }), nil
	})
	ws := sim(t, 4, limited(1, 4, layer))
	n, err := layer.Call(ws[0].Context(t.Context()), "worker1", 20)
	require.NoError(t, err)
	require.Equal(t, 20, n)
}

func TestTheTimeoutIsThatOfTheCallThenTheContextsThenTheWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nap := Define("nap", func(c context.Context, d time.Duration) (int, error) {
			select {
			case <-time.After(d):
				return 1, nil
			case <-c.Done():
				return 0, context.Cause(c)
			}
		})
		ws := sim(t, 2, serve(nap))
		w, c := ws[0], ws[0].Context(t.Context())
		took := func(c context.Context) (time.Duration, error) {
			start := time.Now()
			_, err := nap.Call(c, "worker1", 2*time.Hour)
			return time.Since(start), err
		}
		require.Equal(t, 60*time.Second, w.Timeout())
		d, err := took(c)
		require.ErrorIs(t, err, ErrTimeout)
		require.Equal(t, 60*time.Second, d, "the default")
		require.NoError(t, w.SetTimeout(time.Millisecond))
		d, _ = took(c)
		require.Equal(t, time.Millisecond, d, "what was set")
		f := nap.Async(c, "worker1", 2*time.Hour)
		start := time.Now()
		require.NoError(t, w.SetTimeout(200*time.Second))
		_, err = f.Wait(c)
		require.ErrorIs(t, err, ErrTimeout)
		require.Equal(t, time.Millisecond, time.Since(start), "what held when the call was made")
		d, _ = took(WithTimeout(c, time.Second))
		require.Equal(t, time.Second, d, "the call's own beats the default")
		d, err = took(WithTimeout(c, NoTimeout))
		require.NoError(t, err)
		require.Equal(t, 2*time.Hour, d, "none")
		bounded, cancel := context.WithTimeout(c, 5*time.Second)
		defer cancel()
		d, _ = took(WithTimeout(bounded, NoTimeout))
		require.Equal(t, 5*time.Second, d, "the context's own holds as well")
		require.NoError(t, w.SetTimeout(NoTimeout))
		d, err = took(c)
		require.NoError(t, err)
		require.Equal(t, 2*time.Hour, d)
		require.ErrorIs(t, w.SetTimeout(0), ErrConfig)
		require.ErrorIs(t, w.SetTimeout(-5), ErrConfig)
	})
}

// Cancelled at the caller, a call ends on three workers within the delay of the path, and the
// deadline travels as far.
func TestACancelledCallEndsOnThreeWorkersWithinThePathsDelay(t *testing.T) {
	const delay = 20 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		ended := map[string]time.Time{}
		deadlines := map[string]time.Time{}
		var deep *Func[int, int]
		deep = Define("deep", func(c context.Context, ttl int) (n int, err error) {
			w, _ := FromContext(c)
			d, _ := c.Deadline()
			if ttl > 0 {
				n, err = deep.Call(c, Rank(w.Rank()+1), ttl-1)
			} else {
				<-c.Done()
			}
			mu.Lock()
			defer mu.Unlock()
			deadlines[w.Name()], ended[w.Name()] = d, time.Now()
			return n, err
		})
		ws, _ := simWith(t, 4, simnet.Config{MinDelay: delay, MaxDelay: delay}, serve(deep))
		c, cancel := context.WithTimeout(ws[0].Context(t.Context()), time.Hour)
		begun := time.Now()
		f := deep.Async(c, "worker1", 2)
		time.Sleep(time.Second)
		start := time.Now()
		cancel()
		_, err := f.Wait(t.Context())
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, time.Since(start), "at once for the caller")
		time.Sleep(time.Second)
		mu.Lock()
		defer mu.Unlock()
		for hops, name := range []string{"worker1", "worker2", "worker3"} {
			require.Equal(t, time.Duration(hops+1)*delay, ended[name].Sub(start), name)
			late := deadlines[name].Sub(begun.Add(time.Hour))
			require.Equal(t, time.Duration(hops+1)*delay, late, "what is left of the time travels: %s", name)
		}
	})
}

func TestTheStackOfAPanicIsReadableInTheLog(t *testing.T) {
	var logs journal
	explode := Define("explode", func(context.Context, int) (int, error) { return explodeDeeper(0), nil })
	ws := sim(t, 2, func(_ int, cfg *Config) { cfg.Functions, cfg.Logger = []Function{explode}, logs.logger() })
	_, err := explode.Call(ws[0].Context(t.Context()), "worker1", 0)
	require.ErrorIs(t, err, ErrPanic)
	require.NotContains(t, err.Error(), "calls_test.go", "the stack stays where it happened")
	require.Equal(t, 1, logs.count("level=ERROR"), "one record")
	_, stack, _ := strings.Cut(logs.String(), `stack="`)
	lines := strings.Split(stack, `\n`)
	require.Contains(t, lines[0], "explodeDeeper", "from where it happened outwards")
	require.Contains(t, lines[0], "calls_test.go:")
	require.Contains(t, lines[1], "TestTheStackOfAPanicIsReadableInTheLog")
	require.LessOrEqual(t, len(lines), maxStack)
}

//go:noinline
func explodeDeeper(zero int) int { return 1 / zero }

func TestFunctionsThatPanicOrEndTheirGoroutineGiveTheirPlacesBack(t *testing.T) {
	boom := Define("boom", func(context.Context, int) (int, error) { panic("kaboom") })
	laterBoom := DefineAsync("laterBoom", func(c context.Context, _ int) (*Future[int], error) {
		return Then(double.Async(c, "worker1", 1), func(int) (int, error) { panic("kaboom later") }), nil
	})
	ws := sim(t, 2, func(_ int, cfg *Config) {
		limited(1, 2, boom, laterBoom, double)(0, cfg)
		cfg.Logger = slog.New(slog.DiscardHandler)
	})
	c := ws[0].Context(t.Context())
	for range 5 {
		for _, f := range []*Func[int, int]{boom, laterBoom} {
			_, err := f.Call(c, "worker1", 0)
			require.ErrorIs(t, err, ErrPanic, f.Name())
		}
		n, err := double.Call(c, "worker1", 1)
		require.NoError(t, err)
		require.Equal(t, 2, n)
	}
	eventually(t, "all places are free", func() bool { running, queued := ws[1].serving.gate.Load(); return running+queued == 0 })
}

func TestAContextKeptBeyondItsCallHasEnded(t *testing.T) {
	kept := make(chan context.Context, 1)
	keep := Define("keep", func(c context.Context, _ int) (int, error) { kept <- c; return 0, nil })
	ws := sim(t, 2, serve(keep))
	_, err := keep.Call(ws[0].Context(t.Context()), "worker1", 0)
	require.NoError(t, err)
	c := <-kept
	<-c.Done()
	require.Error(t, c.Err())
	w, _ := FromContext(c)
	require.Equal(t, "worker1", w.Name())
}

func BenchmarkEmptyCall(b *testing.B) {
	empty := Define("empty", func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil })
	for _, network := range []string{"loopback", "self"} {
		b.Run("to="+network, func(b *testing.B) {
			ws := world(b, 2, nil, serve(empty))
			c := ws[0].Context(b.Context())
			to := map[string]string{"loopback": "worker1", "self": "worker0"}[network]
			for _, depth := range []int{1, 64} {
				b.Run(fmt.Sprintf("inflight=%d", depth), func(b *testing.B) {
					b.ReportAllocs()
					b.SetParallelism(depth)
					if depth == 1 {
						for b.Loop() {
							if _, err := empty.Call(c, to, struct{}{}); err != nil {
								b.Fatal(err)
							}
						}
						return
					}
					b.RunParallel(func(pb *testing.PB) {
						for pb.Next() {
							if _, err := empty.Call(c, to, struct{}{}); err != nil {
								b.Error(err)
								return
							}
						}
					})
				})
			}
		})
	}
}
