package main

import (
	"bytes"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic/agent"
)

// TestMain makes the test binary the example where it is started as a worker.
func TestMain(m *testing.M) {
	if os.Getenv("WEFT_TEST_REPLICAS") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// percent starts so many workers, and gives what each says is right.
func percent(t *testing.T, workers int) (all []float64) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	t.Setenv("WEFT_TEST_REPLICAS", "1")
	var out, errs bytes.Buffer
	_, err = agent.Run(t.Context(), agent.Spec{Program: self, NprocPerNode: workers, Stdout: &out, Stderr: &errs})
	require.NoError(t, err, errs.String())
	for _, line := range regexp.MustCompile(`(\S+)% of`).FindAllStringSubmatch(out.String(), -1) {
		v, err := strconv.ParseFloat(line[1], 64)
		require.NoError(t, err)
		all = append(all, v)
	}
	require.Len(t, all, workers, out.String())
	return all
}

func TestTwoWorkersLearnWhatOneDoes(t *testing.T) {
	one, two := percent(t, 1), percent(t, 2)
	require.Equal(t, two[0], two[1])
	require.InDelta(t, one[0], two[0], 1)
	require.Greater(t, two[0], 90.0)
}
