//go:build unix

package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weft-project/weft/elastic/internal/output"
	"github.com/weft-project/weft/internal/disttest/proctest"
)

func TestTheEndOfAWorkerIsHeardThoughAnotherProcessHoldsItsOutput(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"there", "fifo"} {
		require.NoError(t, unix.Mkfifo(filepath.Join(dir, name), 0o600))
	}
	cmd := exec.Command("/bin/sh", "-c", `setsid sh -c 'echo >there; read x <fifo; echo late >&2' & read x <there; echo last words >&2; exit 3`)
	cmd.Dir = dir
	out := &proctest.Output{}
	sink, _ := output.NewSinks(out, out)
	show := func() *output.Lines { return &output.Lines{Sink: sink, Prefix: output.NewLabel(""), Keep: true} }
	stderr := show()
	p, err := Start(cmd, false, show(), stderr)
	require.NoError(t, err)
	p.drain = time.Hour
	require.Equal(t, 3, p.Wait().Code)
	p.Hear()
	require.Equal(t, []string{"last words"}, stderr.Tail())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "fifo"), []byte("go\n"), 0))
	p.Heard()
	require.Equal(t, "last words\nlate\n", out.String())
}
