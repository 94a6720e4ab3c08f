//go:build !race

package parallel

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSpreadingAllocatesNothing(t *testing.T) {
	pool, c, small := NewPool(3), newCounted(64, 4), newCounted(64, 64)
	require.Zero(t, int(testing.AllocsPerRun(100, func() { pool.For(64, 4, c) })))
	require.Zero(t, testing.AllocsPerRun(100, func() { For(64, 64, small) }))
}
