package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func write(t *testing.T, name, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	return file
}

func TestAnyTableWhoseLastColumnIsTheClassTrains(t *testing.T) {
	var b strings.Builder // two classes, 5 and 9, that a line separates; with a constant column
	b.WriteString("a, b, c, class\n# a comment\n")
	for i := range 60 {
		fmt.Fprintf(&b, "%d, 7, %g, %d\n", i, float64(i%2)*10+float64(i)/100, 5+4*(i%2))
	}
	r := runJSON(t, "--workers", "1", "--data", write(t, "blobs.csv", b.String()), "--batch", "8")
	require.Equal(t, []int{60, 3, 2}, []int{r.Rows, r.Features, r.Classes})
	require.Equal(t, 1.0, r.TestAccuracy)
}

func TestABadDataFileEndsBothWorkersWithItsName(t *testing.T) {
	var out, errs bytes.Buffer
	file := write(t, "truncated.csv.gz", "\x1f\x8bnot gzip")
	require.Equal(t, 1, run(t.Context(), []string{"--data", file}, &out, &errs))
	require.Contains(t, errs.String(), "truncated.csv.gz")
	require.Contains(t, errs.String(), "worker0 (rank 0")
}
