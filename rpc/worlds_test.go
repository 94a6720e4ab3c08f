package rpc

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport/simnet"
)

func TestEveryWorkerKnowsItselfAndTheNameAndRankOfAllAndMayTellOthers(t *testing.T) {
	infos := Define("infos", func(c context.Context, of []WorkerInfo) (map[string]WorkerInfo, error) {
		w, _ := FromContext(c)
		return map[string]WorkerInfo{"self": w.Workers()[w.Rank()], "last": of[len(of)-1]}, nil
	})
	ws := sim(t, 3, func(i int, cfg *Config) { cfg.Name, cfg.Functions = fmt.Sprintf("n%d", 9-i), []Function{infos} })
	want := []WorkerInfo{{Name: "n9"}, {Name: "n8", Rank: 1}, {Name: "n7", Rank: 2}}
	for i, info := range ws[0].Workers() {
		require.NotZero(t, info.Incarnation)
		want[i].Incarnation = info.Incarnation
	}
	for i, w := range ws {
		require.Equal(t, want, w.Workers())
		require.Equal(t, want[i].Name, w.Name())
		require.Equal(t, want[i].Rank, w.Rank())
		got, err := infos.Call(ws[0].Context(t.Context()), w.Name(), w.Workers())
		require.NoError(t, err)
		require.Equal(t, map[string]WorkerInfo{"self": want[i], "last": want[2]}, got, "infos travel as they are, and compare")
	}
}

func TestAWorldOfOneCallsItselfInEveryWayAndNobodyElse(t *testing.T) {
	ws := sim(t, 1, serve(double))
	c := ws[0].Context(t.Context())
	everyWay(t, double, func(t *testing.T, call func(context.Context, string, int) (int, error)) {
		n, err := call(c, "worker0", 21)
		require.NoError(t, err)
		require.Equal(t, 42, n)
		_, err = call(c, "worker1", 1)
		require.ErrorIs(t, err, ErrUnknownWorker)
	})
	require.NoError(t, Barrier(c))
	nothing(t, ws)
	leaveAll(t, ws)
}

func TestNamesAreOfFewCharactersAndShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		join := func(name string) error {
			ws, errs := joinAll(t.Context(), memory(t), 1, onSim(simnet.New(simnet.Config{})), func(_ int, cfg *Config) { cfg.Name = name })
			if errs[0] == nil {
				leaveAll(t, ws)
			}
			return errs[0]
		}
		for _, name := range []string{"", "a", "A:z_0-9", strings.Repeat("x", 127)} {
			require.NoError(t, join(name), name)
		}
		for _, name := range []string{" ", "abc*", "a b", "é", "a\n", "a/b", Rank(0), strings.Repeat("x", 128)} {
			err := join(name)
			require.ErrorIs(t, err, ErrConfig, name)
			require.ErrorContains(t, err, "expected 1 to 127 of A-Z a-z 0-9 _ : -")
		}
	})
}

func TestOneProcessIsOfTwoJobsWhoseStoreNamesAndPassesDoNotMix(t *testing.T) {
	leak.Check(t)
	st := memory(t)
	whose := func(job string) *Func[string, string] {
		return Define("whose", func(_ context.Context, from string) (string, error) { return from + " of " + job, nil })
	}
	var jobs [2][]*Worker
	for i, job := range []string{"left", "right"} {
		ws, errs := joinAll(t.Context(), store.NewPrefix(job, st), 2, onSim(simnet.New(simnet.Config{})), serve(whose(job)))
		for _, err := range errs {
			require.NoError(t, err)
		}
		jobs[i] = ws
	}
	for i, job := range []string{"left", "right"} {
		require.NoError(t, jobs[i][0].Pass(t.Context(), func(c context.Context) error {
			s, err := whose(job).Call(c, "worker1", "one")
			require.NoError(t, err)
			require.Equal(t, "one of "+job, s)
			require.Len(t, jobs[i][1].Passes(), 1)
			require.Empty(t, jobs[1-i][1].Passes())
			return nil
		}))
		leaveAll(t, jobs[i])
	}
	keys, err := st.NumKeys(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, keys, "of each job how often it was joined")
}

func TestLeavingWithCallsUnderWayBetweenAllFinishesThemAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nap := Define("nap", func(_ context.Context, d time.Duration) (int, error) { time.Sleep(d); return 1, nil })
		relay := Define("relay", func(c context.Context, to string) (int, error) { return nap.Call(c, to, time.Second) })
		ws, _ := simWith(t, 4, simnet.Config{MinDelay: time.Millisecond, MaxDelay: 9 * time.Millisecond}, serve(nap, relay))
		var mu sync.Mutex
		var all []*Future[int]
		var wg sync.WaitGroup
		for i, w := range ws {
			wg.Go(func() {
				c := w.Context(t.Context())
				for k := range 4 * (i + 1) { // some have more to do than others
					mu.Lock()
					all = append(all, nap.Async(c, Rank(k%4), time.Duration(i)*time.Second), relay.Async(c, Rank((k+1)%4), ws[(k+2)%4].Name()))
					mu.Unlock()
				}
				if err := w.Leave(t.Context()); err != nil {
					t.Errorf("%s: %v", w.Name(), err)
				}
			})
		}
		wg.Wait()
		require.Len(t, all, 80)
		for _, f := range all {
			n, err := f.Wait(t.Context())
			require.NoError(t, err)
			require.Equal(t, 1, n)
		}
	})
}

func TestALeaveThatEndsTooEarlySaysWhichCallsAreOutstanding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws, _ := simWith(t, 2, simnet.Config{}, serve(wait))
		wait.Async(ws[0].Context(t.Context()), "worker1", 0)
		synctest.Wait()
		c, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorContains(t, ws[0].Leave(c), "calls are outstanding (wait: 1 to others)")
	})
}

func TestArgumentsBeyondTheLimitsAreRefusedWithTheLimitThatHelps(t *testing.T) {
	length := Define("length", func(_ context.Context, b []byte) (int, error) { return len(b), nil })
	large := Define("large", func(context.Context, int) ([]byte, error) { return make([]byte, 2<<20), nil })
	ws := world(t, 2, nil, serve(length, large))
	c := ws[0].Context(t.Context())
	_, err := length.Call(c, "worker1", make([]byte, 2<<20))
	require.ErrorIs(t, err, ErrArguments)
	require.ErrorContains(t, err, "at most 1048576 bytes (Limits.MaxHeader)")
	require.ErrorContains(t, err, "Config.Network")
	_, err = large.Call(c, "worker1", 0)
	require.ErrorIs(t, err, ErrArguments)
	require.ErrorContains(t, err, "Limits.MaxHeader")
	n, err := length.Call(c, "worker1", make([]byte, 1000))
	require.NoError(t, err)
	require.Equal(t, 1000, n)
}
