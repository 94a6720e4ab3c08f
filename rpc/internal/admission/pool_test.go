package admission

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// With the race detector this fails where work begins on a new goroutine of a pool that is waited
// for.
func TestAClosedPoolRunsWorkOnTheCallersGoroutine(t *testing.T) {
	for range 100 {
		var all, callers sync.WaitGroup
		var ran atomic.Int32
		end := make(chan struct{})
		p := NewPool(&all, end)
		for range 4 {
			callers.Go(func() { p.Do(func() { ran.Add(1) }) })
		}
		close(end)
		p.Close()
		all.Wait()
		before := ran.Load()
		p.Do(func() { ran.Add(1) })
		require.Greater(t, ran.Load(), before, "it has run when Do returns")
		callers.Wait()
		all.Wait()
		require.Equal(t, int32(5), ran.Load())
	}
}
