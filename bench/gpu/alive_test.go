package main

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// alive tells whether processes are left of those that ran its script, or were started by such:
// they all have a pipe open.
type alive struct {
	script string // its beginning
	fifo   *os.File
}

func newAlive(t *testing.T) alive {
	path := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return alive{"exec 9>" + path + "; echo here >&9\n", f}
}

// none waits until there are none. There were some.
func (a alive) none(t *testing.T) {
	said, err := io.ReadAll(a.fifo)
	require.NoError(t, err)
	require.NotEmpty(t, said)
}
