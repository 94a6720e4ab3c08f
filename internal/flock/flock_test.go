package flock_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/flock"
)

func TestALockIsSharedOrOneOpenFilesAndEndsWithIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		return f
	}
	try := func(f *os.File, exclusive, want bool) {
		t.Helper()
		free, err := flock.Try(f, exclusive)
		require.NoError(t, err)
		require.Equal(t, want, free)
	}
	a, b := open(), open()
	try(a, true, true)
	try(b, true, false)
	try(b, false, false)
	require.NoError(t, flock.Unlock(a))
	try(b, false, true)
	try(a, false, true)
	try(a, true, false)
	require.NoError(t, b.Close())
	try(a, true, true)
	require.NoError(t, a.Close())
	_, err := flock.Try(a, true)
	require.Error(t, err)
}
