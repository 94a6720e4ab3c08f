package main

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

func TestTwoWorkersHaveTheLossesThatTheirPagePrints(t *testing.T) {
	out := exampletest.Job(t, 2)
	page, err := os.ReadFile("../../../docs/start.md")
	require.NoError(t, err)
	printed := regexp.MustCompile(`(?m)^\[0\] step .*\n`).FindAllString(string(page), -1)
	losses := regexp.MustCompile(`loss (\d\.\d+)`)
	lines := strings.SplitAfter(out, "\n")
	require.Len(t, lines, len(printed)+1, "%s", out)
	for i, line := range printed {
		require.Equal(t, line[:len("[0] step 100  loss ")], lines[i][:len("[0] step 100  loss ")])
		got, want := losses.FindStringSubmatch(lines[i]), losses.FindStringSubmatch(line)
		require.NotNil(t, got, "%s", lines[i])
		require.InDelta(t, number(t, want[1]), number(t, got[1]), 1e-3, "kernels of another BLAS round otherwise")
	}
}

func number(t *testing.T, s string) float64 {
	f, err := strconv.ParseFloat(s, 64)
	require.NoError(t, err)
	return f
}
