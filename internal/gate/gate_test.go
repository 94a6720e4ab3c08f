package gate

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestWhoIsInsideKeepsItOpenAndNobodyComesInOnceItIsToBeClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		require.True(t, g.Enter())
		require.True(t, g.Enter(), "within itself, too")
		var closed atomic.Bool
		go func() {
			if g.Close() {
				closed.Store(true)
			}
		}()
		for range 2 {
			for !g.mu.TryLock() && g.Enter() { // until the closer waits
				g.Leave()
			}
			require.False(t, closed.Load())
			require.False(t, g.Enter())
			g.Leave()
		}
		synctest.Wait()
		require.True(t, closed.Load())
		require.False(t, g.Enter())
		require.False(t, g.Close())
	})
}

func TestNothingIsUsedAfterItWasClosed(t *testing.T) {
	var g Gate
	used := 0 // the race detector sees who uses it too late
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for g.Enter() {
				mu.Lock()
				used++
				mu.Unlock()
				g.Leave()
			}
		})
	}
	require.True(t, g.Close())
	used = -1
	all.Wait()
	require.Equal(t, -1, used)
}
