package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/internal/disttest/proctest"
)

// shared makes a folder as /tmp is: everybody makes files in it, and removes only his own.
func shared(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "weft-shared-*")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o777|os.ModeSticky))
	return dir
}

func TestAPlantedFolderForLogsIsNotUsedAndNoLinkInItFollowed(t *testing.T) {
	t.Parallel()
	tmp := shared(t)
	other := stranger(t)
	planted := filepath.Join(tmp, fmt.Sprintf("weft-logs-%d", os.Getuid()))
	require.NoError(t, other.Ask(t.Context(), "mkdir", planted, nil))
	victim, fifo := filepath.Join(t.TempDir(), "victim"), filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, os.WriteFile(victim, []byte("root's\n"), 0o600))
	require.NoError(t, unix.Mkfifo(fifo, 0o600))

	worker := `if [ $` + elastic.RestartsVariable + ` = 0 ]; then echo ready >&2; read line <` + fifo + `; exit 1; fi; echo 'into the file'`
	cmd := exec.Command(os.Args[0], "run", "--max-restarts", "1", "--redirects", "1", "sh", "-c", worker)
	said := &proctest.Output{}
	cmd.Stdout, cmd.Stderr = said, said
	cmd.Env = append(os.Environ(), "WEFT_TEST_PART=weft", "GORACE=atexit_sleep_ms=0", "TMPDIR="+tmp, "XDG_STATE_HOME="+t.TempDir())
	require.NoError(t, cmd.Start())
	said.Await(t, "ready\n", 1)
	var jobs int
	require.NoError(t, other.Ask(t.Context(), "plant", struct{ Folder, Link string }{planted, victim}, &jobs))
	require.NoError(t, os.WriteFile(fifo, []byte("go\n"), 0o600))
	require.NoError(t, cmd.Wait(), said)

	b, err := os.ReadFile(victim)
	require.NoError(t, err)
	require.Equal(t, "root's\n", string(b))
	require.Zero(t, jobs, "a job has its logs in a folder of another user's")
	_, logs, _ := strings.Cut(said.String(), "log files are in ")
	logs, _, _ = strings.Cut(logs, "\n")
	b, err = os.ReadFile(filepath.Join(logs, "round_0/attempt_1/0/stdout.log"))
	require.NoError(t, err)
	require.Equal(t, "into the file\n", string(b))
}

func TestALogFolderOfAnotherUsersIsRefused(t *testing.T) {
	t.Parallel()
	planted := filepath.Join(shared(t), "logs")
	require.NoError(t, stranger(t).Ask(t.Context(), "mkdir", planted, nil))
	code, _, stderr := weft(t, "run", "--log-dir", planted, os.Args[0], "show", "RANK")
	require.Equal(t, 2, code, stderr)
	require.Contains(t, stderr, "weft: --log-dir: "+planted+" belongs to user 65534: others on this host could change it; name a folder of your own\n")
}
