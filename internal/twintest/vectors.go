package twintest

import (
	"strings"
	"testing"
)

// Vectors holds name32x8.go, name64x8.go and name64x4.go to name32x16.go: code for 16 lanes of
// float32, in whose names, and nowhere else, the numbers 32 and 16 stand, and for a quarter of a
// vector x4 and [4]. With write, it writes them before.
func Vectors(t testing.TB, name string, write bool) {
	t.Helper()
	for to, words := range map[string][]string{
		"32x8": {"16", "8"},
		"64x8": {"16", "8", "32", "64", "x4", "x2", "[4]", "[2]"},
		"64x4": {"16", "4", "32", "64", "x4", "x2", "[4]", "[2]"},
	} {
		Check(t, name+"32x16.go", name+to+".go", strings.NewReplacer(words...).Replace, write)
	}
}
