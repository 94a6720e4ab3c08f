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
				p, err := Compile(parseUnit(t, body), backend(t))
				require.NoError(t, err)
				require.NoError(t, p.Explain(&text))
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
