package program

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The units of testdata/optimize_*.txt, as a person would read their programs.
func TestExplainTellsWhatWasFusedAndWhatItCosts(t *testing.T) {
	for _, name := range []string{"mlp", "block"} {
		t.Run(name, func(t *testing.T) {
			raw, err := os.ReadFile("testdata/optimize_" + name + ".txt")
			require.NoError(t, err)
			var text strings.Builder
			for _, block := range strings.Split(strings.TrimSpace(string(raw)), "\n\n") {
				before, _, _ := strings.Cut(block, "\n----")
				_, body, _ := strings.Cut(before, "\n")
				u := parseUnit(t, body)
				Optimize(u)
				require.NoError(t, u.Explain(&text))
				text.WriteString("\n")
			}
			file := "testdata/" + name + ".explain"
			if *rewriteFiles {
				require.NoError(t, os.WriteFile(file, []byte(text.String()), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, string(want), text.String())
		})
	}
}

func TestExplainOfAProgramTellsTheMemoryOfARun(t *testing.T) {
	u := parseUnit(t, "sums\ngiven %0 float32(64, 32)\n%1 = Softmax(axis=1, log=false) %0\n%2 = Sum(axes=[1], keep=false) %1\nresults %2\n")
	p, err := Compile(u, backend(t))
	require.NoError(t, err)
	var text strings.Builder
	require.NoError(t, p.Explain(&text))
	require.Contains(t, text.String(), "memory of a run: at most 8.2 KiB beside its inputs, of which 256 B of results and 8.0 KiB in the arena")
}

func TestDotDrawsEveryInstructionAndValue(t *testing.T) {
	u := parseUnit(t, "small\ngiven %0 float32(2, 3), %1 float32(3)\n%2 = Add %0 %1\n%3 = Reshape(6) %2\nresults %3, %0\n")
	var text strings.Builder
	require.NoError(t, u.Dot(&text))
	for _, line := range []string{
		`digraph "small" {`, `v0 [label="%0 float32(2, 3)", shape=ellipse]`, `i0 [label="Add\n6 flops, 60 B", fillcolor="palegreen"]`,
		`v1 -> i0 [label="%1 (3)", penwidth=1]`, `i0 -> i1 [`, `i1 -> r0 [`, `v0 -> r1 [`,
	} {
		require.Contains(t, text.String(), line)
	}
}
