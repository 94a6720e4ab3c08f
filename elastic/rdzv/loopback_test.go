package rdzv

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/store"
)

// overLoopback has n nodes form a round over a server, each with a connection of its own, and says
// how long it took from the first join until the last one knew its place.
func overLoopback(t testing.TB, n int) time.Duration {
	server, err := store.Serve(store.ServerConfig{})
	require.NoError(t, err)
	defer server.Close()
	stores := make([]store.Store, n)
	for i := range stores {
		client, err := store.Dial(t.Context(), store.ClientConfig{Addr: server.Addr()})
		require.NoError(t, err)
		defer client.Close()
		stores[i] = store.NewPrefix("rdzv/job", client)
	}
	places, errs := make([]Placement, n), make([]error, n)
	nodes := make([]*Rendezvous, n)
	var runs sync.WaitGroup
	began := time.Now()
	for i := range n {
		node := Node{ID: fmt.Sprintf("host-%05d", i), Addr: "127.0.0.1", Slots: 8}
		nodes[i], errs[i] = Open(t.Context(), stores[i], Config{Min: n}, node, nil)
		require.NoError(t, errs[i])
		runs.Go(func() {
			a, open := <-nodes[i].News
			if places[i] = a.Placement; !open || a.Kind != Place {
				errs[i] = fmt.Errorf("node %d: %v %+v", i, open, a)
			}
		})
	}
	runs.Wait()
	took := time.Since(began)
	ranks := map[int]bool{}
	for i, p := range places {
		require.NoError(t, errs[i])
		require.Equal(t, n, p.Nodes)
		require.Equal(t, 8*n, p.World)
		ranks[p.Rank] = true
	}
	require.Len(t, ranks, n)
	// All leave at once, their leader among them: each without a word to the others, who are about
	// to go as well.
	c, cancel := context.WithCancel(t.Context())
	cancel()
	for _, r := range nodes {
		_ = r.Leave(c, "")
	}
	return took
}

func TestAHundredNodesFormARoundOverAServer(t *testing.T) {
	leak.Check(t)
	overLoopback(t, 100)
}

// The processor's time is that of all nodes and of the server.
func BenchmarkRoundOverLoopback(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			var took, busy time.Duration
			for b.Loop() {
				began := processor(b)
				took += overLoopback(b, n)
				busy += processor(b) - began
			}
			b.ReportMetric(took.Seconds()/float64(b.N), "s/round")
			b.ReportMetric(busy.Seconds()/float64(b.N), "cpu-s/round")
		})
	}
}

// processor is what this process has had of the processors.
func processor(t testing.TB) time.Duration {
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
