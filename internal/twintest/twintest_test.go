package twintest

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// recorded is a test that may fail without failing this one.
type recorded struct {
	testing.TB
	failed bool
}

func (r *recorded) Errorf(string, ...any) { r.failed = true }
func (r *recorded) FailNow()              { r.failed = true }

func TestATwinIsWrittenAndThenHeldToItsSource(t *testing.T) {
	t.Chdir(t.TempDir())
	words := strings.NewReplacer("one", "two").Replace
	require.NoError(t, os.WriteFile("one.go", []byte("package one\n"), 0o600))
	check := func(write bool) bool {
		r := &recorded{TB: t}
		Check(r, "one.go", "two.go", words, write)
		return !r.failed
	}
	require.False(t, check(false), "it is missing")
	require.True(t, check(true))
	require.True(t, check(false))
	two, err := os.ReadFile("two.go")
	require.NoError(t, err)
	require.Equal(t, "// Code generated from one.go by go test -run "+t.Name()+" -update; DO NOT EDIT.\n\npackage two\n", string(two))
	require.NoError(t, os.WriteFile("one.go", []byte("package one // and more\n"), 0o600))
	require.False(t, check(false), "the source has changed")
	require.True(t, check(true))
	require.NoError(t, os.WriteFile("two.go", append(two, '\n'), 0o600))
	require.False(t, check(false), "somebody edited it")
}

func TestCodeForOneVectorIsCodeForTheOthers(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("f32x16.go", []byte("package f\n\ntype f32x16 [16]float32\n\nvar o = to16(Float32x4{}, [4]float32{})\n"), 0o600))
	Vectors(t, "f", true)
	for file, want := range map[string]string{
		"f32x8.go": "type f32x8 [8]float32\n\nvar o = to8(Float32x4{}, [4]float32{})\n",
		"f64x8.go": "type f64x8 [8]float64\n\nvar o = to8(Float64x2{}, [2]float64{})\n",
		"f64x4.go": "type f64x4 [4]float64\n\nvar o = to4(Float64x2{}, [2]float64{})\n",
	} {
		have, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Contains(t, string(have), want)
	}
}
