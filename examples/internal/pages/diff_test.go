package pages

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// program is an example's source from its package clause on.
func program(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "\npackage ")
	require.True(t, found, path)
	return rest
}

// patched applies a diff, whose parts begin with @@, and counts the lines that it adds.
func patched(t *testing.T, text, diff string) (after string, added int) {
	t.Helper()
	for part := range strings.SplitSeq(diff, "@@\n") {
		var from, to strings.Builder
		for line := range strings.Lines(part) {
			switch line[0] {
			case '-':
				from.WriteString(line[1:])
			case '+':
				to.WriteString(line[1:])
				added++
			default:
				from.WriteString(strings.TrimPrefix(line, " "))
				to.WriteString(strings.TrimPrefix(line, " "))
			}
		}
		require.Equal(t, 1, strings.Count(text, from.String()), "this stands once in the program:\n%s", from.String())
		text = strings.Replace(text, from.String(), to.String(), 1)
	}
	return text, added
}

func TestTheDiffOfThePageMakesOfOneProcessAProgramForMany(t *testing.T) {
	diffs, _ := blocks(pages(t)["docs/data-parallel.md"], "diff")
	require.Len(t, diffs, 1)
	after, added := patched(t, program(t, "examples/replicas/alone/main.go"), diffs[0])
	require.Equal(t, program(t, "examples/replicas/main.go"), after)
	require.Less(t, added, 15)
}
