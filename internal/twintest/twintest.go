package twintest

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// Check fails the test where the file at path to is not the one at path from as words have it,
// under a header that says so. With write, it writes the file before.
func Check(t testing.TB, from, to string, words func(string) string, write bool) {
	t.Helper()
	source, err := os.ReadFile(from)
	require.NoError(t, err)
	want := fmt.Appendf(nil, "// Code generated from %s by go test -run %s -update; DO NOT EDIT.\n\n%s", from, t.Name(), words(string(source)))
	if write {
		require.NoError(t, os.WriteFile(to, want, 0o644))
	}
	have, err := os.ReadFile(to)
	require.NoError(t, err)
	require.Equal(t, string(want), string(have), "%s is %s in other words: go test -run %s -update writes it anew", to, from, t.Name())
}
