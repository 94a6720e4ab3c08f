package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weft-project/weft/cmd/weft/internal/cli"
	"github.com/weft-project/weft/internal/secret"
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
		require.Equal(t, cli.CodeUsage, code, stderr)
		require.Contains(t, stderr, fifo+": expected a regular file")
	}
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	_, err = w.WriteString(transport.NewToken() + "\n")
	require.NoError(t, err)
	require.NoError(t, w.Close())
	_, err = secret.ReadFile(fmt.Sprintf("/dev/fd/%d", r.Fd()))
	require.NoError(t, err)
}

// The derivation of a secret that a person chose takes hundreds of milliseconds, and hears of
// nothing.
func TestASignalEndsALauncherThatDerivesItsSecret(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	cmd := exec.Command(os.Args[0], "run", "--token-file", "/dev/fd/3", os.Args[0], "wait")
	cmd.Env = append(os.Environ(), "WEFT_TEST_PART=weft", "WEFT_TOKEN=")
	cmd.ExtraFiles = []*os.File{r}
	require.NoError(t, cmd.Start())
	_, err = w.WriteString("correct horse battery staple, and seven more\n")
	require.NoError(t, err)
	require.Eventually(t, func() bool { // it has read the secret
		n, err := unix.IoctlGetInt(int(r.Fd()), unix.TIOCINQ)
		return err == nil && n == 0
	}, time.Minute, time.Millisecond)
	require.NoError(t, w.Close())
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	err = cmd.Wait()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	status, ok := exit.Sys().(syscall.WaitStatus)
	require.True(t, ok)
	require.True(t, status.Signal() == syscall.SIGTERM || status.ExitStatus() == 128+int(syscall.SIGTERM), "%v", err)
}
