package collective

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective/internal/ring"
	"github.com/weft-project/weft/internal/rpctest"
)

func TestATraceSaysWhatIsPendingForWhomItWaitsAndWhereThatOneIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gs := groups(t, rpctest.World(t, rpctest.SlowNet(time.Millisecond), 3), "g")
		c, cancel := context.WithCancel(t.Context())
		defer cancel()
		for r := range 2 {
			go func() { _ = AllReduce(Scope(c, "s"), gs[r], make([]float32, 100000), Sum) }() // both wait for rank 2
		}
		go func() { _, _, _ = RecvNew[int32](c, gs[0], 1, 7) }()
		go func() { _ = Send(c, gs[0], 2, 8, make([]int32, 100000)) }()
		go func() { _, _ = Recv(c, gs[0], Anyone, 9, make([]float64, 3)) }()
		synctest.Wait()
		time.Sleep(100 * time.Millisecond) // of the bubble's clock
		all := map[string]Entry{}
		for _, e := range gs[0].Trace() {
			require.Equal(t, "pending", e.State)
			require.True(t, e.Ended.IsZero())
			require.Equal(t, 100*time.Millisecond, time.Since(e.Began))
			require.Contains(t, e.Line, "trace_test.go:")
			all[e.Call] = e
		}
		names := gs[0].Members()
		require.Len(t, all, 4)
		sum := all["AllReduce Sum of 100000 float32 by direct"]
		require.Equal(t, "s#0", sum.Key)
		require.Equal(t, 400000, sum.Bytes)
		require.Equal(t, []Awaited{{Rank: 2, Worker: names[2].Worker}}, sum.Waits)
		require.Equal(t, []Awaited{{Rank: 1, Worker: names[1].Worker}}, all["Recv of any number of int32 from rank 1 with tag 7"].Waits)
		require.Equal(t, []Awaited{{Rank: 2, Worker: names[2].Worker}}, all["Send of 100000 int32 to rank 2 with tag 8"].Waits)
		require.Contains(t, all, "Recv of 3 float64 from anyone with tag 9")
		cancel()
		synctest.Wait()
		for _, e := range gs[0].Trace() {
			require.Equal(t, "failed", e.State)
			require.Contains(t, e.Error, "context canceled")
			require.Empty(t, e.Waits)
		}
	})
}

func TestATraceSaysWhereWhoIsBehindHasCalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gs := groups(t, rpctest.World(t, rpctest.SlowNet(time.Millisecond), 3), "g")
		c, cancel := context.WithCancel(t.Context())
		defer cancel()
		for r := range 2 {
			go func() { _ = Broadcast(c, gs[r], make([]float32, 10), 0) }() // 1 has the array, and waits for 0 to hear of 2
		}
		synctest.Wait()
		time.Sleep(100 * time.Millisecond) // of the bubble's clock
		e := gs[1].Trace()[0]
		require.Len(t, e.Waits, 1)
		require.Equal(t, 0, e.Waits[0].Rank)
		require.Equal(t, e.Line, e.Waits[0].Line)
	})
}

func TestATraceKeepsTheLastOperationsThatEndedAndAllThatArePending(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 2), "g")
	require.Empty(t, gs[0].Trace())
	c, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- gs[0].Barrier(Scope(c, "stuck")) }()
	each(t, gs, func(r int) error {
		for k := range traced + 100 {
			if err := AllReduce(t.Context(), gs[r], make([]int64, 1+k%7), Max); err != nil {
				return err
			}
		}
		return nil
	})
	all := gs[0].Trace()
	require.Len(t, all, traced+1, "it is older than all that is kept, and is there")
	for i, e := range all[:traced] {
		require.Equal(t, fmt.Sprint("#", 100+i), e.Key)
		require.Equal(t, "done", e.State)
		require.Equal(t, 8*(1+(100+i)%7), e.Bytes)
		require.False(t, e.Ended.Before(e.Began))
	}
	require.Equal(t, "stuck#0", all[traced].Key)
	cancel()
	require.Error(t, <-ended)
	require.Len(t, gs[0].Trace(), traced)

	text, err := json.Marshal(gs[0].Trace())
	require.NoError(t, err)
	var back []Entry
	require.NoError(t, json.Unmarshal(text, &back))
	require.Len(t, back, traced)
	require.Equal(t, "failed", back[traced-1].State)
	require.True(t, strings.HasPrefix(back[0].Call, "AllReduce Max of "))
}

// BenchmarkTrace is what the trace adds to an operation.
func BenchmarkTrace(b *testing.B) {
	g := &Group{past: ring.New[record](traced), tallies: map[string]*tally{}}
	for b.Loop() {
		r := record{began: time.Now()}
		r.call.Kind = 1
		g.mu.Lock()
		g.finish(&r, nil)
		g.mu.Unlock()
	}
}
