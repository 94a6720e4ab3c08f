package program

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/kernels"
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

// working is a routine of a backend that takes 3000 bytes while it runs.
type working struct{ kernels.Routine }

func (working) Scratch() int { return 3000 }

func TestExplainCountsWhatKernelsWorkIn(t *testing.T) {
	u := parseUnit(t, "sums\ngiven %0 float32(64, 32)\n%1 = Softmax(axis=1, log=false) %0\n%2 = Sum(axes=[1], keep=false) %1\nresults %2\n")
	p, err := assemble(u, backend(t), 1000) // so that what is between has a buffer of its own
	require.NoError(t, err)
	require.Len(t, p.parts, 2)
	memory := func() string {
		var text strings.Builder
		require.NoError(t, p.Explain(&text))
		_, after, _ := strings.Cut(text.String(), "memory of a run: ")
		return after
	}
	const peak = 64*32*4 + 64*4
	require.Equal(t, peak, p.Peak(p.plan.inputs, itself))
	require.NotContains(t, memory(), "kernels")
	p.parts[0].routine = working{p.parts[0].routine}
	require.Equal(t, max(64*32*4+3000, peak), p.Peak(p.plan.inputs, itself))
	require.Equal(t, "at most 10.9 KiB beside its inputs, of which 256 B of results, at most 2.9 KiB that kernels work in and 0 B in the arena\n", memory())
	p.parts[1].routine = working{p.parts[1].routine}
	require.Equal(t, peak+3000, p.Peak(p.plan.inputs, itself))
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
