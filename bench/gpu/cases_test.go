package main

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/bench/gpu/internal/measure"
)

// peerLines are what each case of bench/torch/gpu.py prints, as it says itself; it refuses to print
// anything else.
func peerLines(t *testing.T) map[string][]string {
	text, err := os.ReadFile("../torch/gpu.py")
	require.NoError(t, err)
	table := regexp.MustCompile(`(?s)\nLINES = (\{.*?\n\})\n`).FindSubmatch(text)
	require.NotNil(t, table)
	var lines map[string][]string
	require.NoError(t, json.Unmarshal(table[1], &lines))
	runs := regexp.MustCompile(`(?m)^CASES = (.*)$`).FindSubmatch(text)
	require.NotNil(t, runs)
	for name := range lines {
		require.Contains(t, string(runs[1]), `"`+name+`": `)
	}
	return lines
}

// The names of what they print are compared where all benchmarks run, on the interpreter.
func TestPyTorchsCasesAreNamedAsWefts(t *testing.T) {
	alone := []string{"correct", "launch", "split"} // which PyTorch has nothing like
	for name := range peerLines(t) {
		require.Contains(t, measure.CaseNames(), name)
		require.NotContains(t, alone, name)
	}
	for _, name := range measure.CaseNames() {
		_, has := peerLines(t)[name]
		require.Equal(t, !slices.Contains(alone, name), has, name)
	}
}
