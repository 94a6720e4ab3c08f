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
	if os.Getenv("WEFT_TEST_START") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestTwoWorkersHaveTheLossesThatTheirPagePrints(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	t.Setenv("WEFT_TEST_START", "1")
	t.Setenv("GORACE", "atexit_sleep_ms=0")
	var out, errs bytes.Buffer
	_, err = agent.Run(t.Context(), agent.Spec{Program: self, NprocPerNode: 2, Stdout: &out, Stderr: &errs})
	require.NoError(t, err, errs.String())
	page, err := os.ReadFile("../../../docs/start.md")
	require.NoError(t, err)
	printed := regexp.MustCompile(`(?m)^\[0\] step .*\n`).FindAllString(string(page), -1)
	losses := regexp.MustCompile(`loss (\d\.\d+)`)
	lines := bytes.SplitAfter(out.Bytes(), []byte("\n"))
	require.Len(t, lines, len(printed)+1, "%s", out.Bytes())
	for i, line := range printed {
		require.Equal(t, line[:len("[0] step 100  loss ")], string(lines[i][:len("[0] step 100  loss ")]))
		got, want := losses.FindStringSubmatch(string(lines[i])), losses.FindStringSubmatch(line)
		require.NotNil(t, got, "%s", lines[i])
		require.InDelta(t, number(t, want[1]), number(t, got[1]), 1e-3, "kernels of another BLAS round otherwise")
	}
}

func number(t *testing.T, s string) float64 {
	f, err := strconv.ParseFloat(s, 64)
	require.NoError(t, err)
	return f
}
