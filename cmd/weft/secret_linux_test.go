package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/transport"
)

func TestANamedPipeIsNoTokenFileAndAnInheritedOneIs(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	for _, args := range [][]string{
		{"run", "--token-file", fifo, os.Args[0]}, {"store", "get", "--token-file", fifo, "--url", "tcp://127.0.0.1:1", "k"},
		{"status", "--rdzv-backend", "etcd", "--rdzv-endpoint", "me@h", "--rdzv-conf", "password_file=" + fifo},
	} {
		code, _, stderr := weft(t, args...)
		require.Equal(t, codeUsage, code, stderr)
		require.Contains(t, stderr, fifo+": expected a regular file")
	}
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	_, err = w.WriteString(transport.NewToken() + "\n")
	require.NoError(t, err)
	require.NoError(t, w.Close())
	_, err = readToken(fmt.Sprintf("/dev/fd/%d", r.Fd()))
	require.NoError(t, err)
}
