package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/cmd/weft/internal/cli"
	"github.com/weft-project/weft/cmd/weft/internal/run"
	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/rpc/trace"
)

// fullDisk is a file on a disk that has room for so many bytes more.
type fullDisk struct {
	mu   sync.Mutex
	room int
	got  bytes.Buffer
}

func (d *fullDisk) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, _ := d.got.Write(p[:min(len(p), d.room)])
	d.room -= n
	if n < len(p) {
		return n, &os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.ENOSPC}
	}
	return n, nil
}

func TestACommandWhoseOutputCannotBeWrittenFails(t *testing.T) {
	at := proctest.Address()
	t.Setenv("WEFT_TOKEN", "")
	r, _ := meets(t, at, "j", rdzv.Config{Min: 1})
	require.Equal(t, rdzv.Place, (<-r.News).Kind)
	dir := t.TempDir()
	spans := filepath.Join(dir, "a.json")
	f, err := os.Create(spans)
	require.NoError(t, err)
	require.NoError(t, trace.NewChrome(f).Close())
	require.NoError(t, f.Close())
	url := "tcp://" + at
	code, _, stderr := weft(t, "store", "set", "k", "v", "--url", url)
	require.Zero(t, code, stderr)
	for _, args := range [][]string{
		{"version"},
		{"--version"},
		{"run", "--help"},
		{"doctor", "--quick"},
		{"status", "--rdzv-endpoint", at, "--rdzv-id", "j"},
		{"status", "--rdzv-endpoint", at, "--rdzv-id", "j", "--json"},
		{"trace", "merge", "--force", "-o", filepath.Join(dir, "all.json"), spans},
		{"store", "get", "k", "--url", url},
		{"store", "keys", "--url", url},
		{"run", "--nproc-per-node", "2", os.Args[0], "show", "RANK"},
		{"run", "--no-prefix", "--log-dir", dir, os.Args[0], "show", "RANK"},
	} {
		var stderr bytes.Buffer
		require.Equal(t, cli.CodeFailed, here(args, &fullDisk{}, &stderr), "%v: %s", args, &stderr)
		require.Contains(t, stderr.String(), "no space left on device", "%v", args)
		stderr.Reset()
		require.Zero(t, here(args, &fullDisk{room: 1 << 20}, &stderr), "%v: %s", args, &stderr)
	}
}

func TestAJobThatFailsHasItsOwnCodeThoughItsOutputIsLost(t *testing.T) {
	var stderr bytes.Buffer
	code := here([]string{"run", "sh", "-c", "echo lost; exit 7"}, &fullDisk{}, &stderr)
	require.Equal(t, 7, code, stderr.String())
	require.Contains(t, stderr.String(), "output was lost: stdout: write /dev/stdout: no space left on device")
}

func TestAJobWhoseOutputNobodyReadsHasTheCodeOfAPipeThatIsClosed(t *testing.T) {
	t.Parallel()
	code := here([]string{"run", os.Args[0], "show", "RANK"}, writerFunc(func([]byte) (int, error) { return 0, syscall.EPIPE }), io.Discard)
	require.Equal(t, run.CodeUnread, code)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
