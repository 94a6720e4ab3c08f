package main

import (
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

// percent starts so many workers, and gives what each says is right.
func percent(t *testing.T, workers int) (all []float64) {
	t.Helper()
	out := exampletest.Job(t, workers)
	for _, line := range regexp.MustCompile(`(\S+)% of`).FindAllStringSubmatch(out, -1) {
		v, err := strconv.ParseFloat(line[1], 64)
		require.NoError(t, err)
		all = append(all, v)
	}
	require.Len(t, all, workers, out)
	return all
}

func TestTwoWorkersLearnWhatOneDoes(t *testing.T) {
	one, two := percent(t, 1), percent(t, 2)
	require.Equal(t, two[0], two[1])
	require.InDelta(t, one[0], two[0], 1)
	require.Greater(t, two[0], 90.0)
}
