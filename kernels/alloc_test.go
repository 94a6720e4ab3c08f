//go:build !race

package kernels

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Under the race detector sync.Pool drops things at random, so that nothing can be said there.

func TestARoutineRunsWithoutAllocation(t *testing.T) {
	r, bufs := chain(t, 100)
	require.NoError(t, r.Run(bufs))
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = r.Run(bufs) }))
}
