package gpumem

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNoGraphHasAnothersFlagOrARunsWhileThereAreOthers(t *testing.T) {
	var f flags
	graphs := map[uint8]bool{}
	for range graphFlags {
		graphs[f.keep()] = true
	}
	require.Len(t, graphs, graphFlags)
	runs := map[uint8]bool{}
	for range 64 - graphFlags {
		k := f.take()
		require.False(t, graphs[k])
		runs[k] = true
	}
	require.Len(t, runs, 64-graphFlags)
	twice := f.keep()
	require.True(t, graphs[twice])
	f.drop(7)
	f.drop(twice)
	require.EqualValues(t, 7, f.keep(), "that of a graph that is gone")
	f.drop(7)
	for range 2 * (65 - graphFlags) {
		runs[f.take()] = true
	}
	require.Len(t, runs, 65-graphFlags)
}
