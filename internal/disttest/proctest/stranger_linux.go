package proctest

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// Nobody is the user that a stranger's process belongs to, on Linux usually called nobody.
const Nobody = 65534

// StartStranger starts a process of another user of this host: who knows where everything is and
// shares no secret with the job. Only root can; a test of anybody else's says so and is not run.
// change is as with Start.
func StartStranger(t testing.TB, change func(*exec.Cmd)) *Proc {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("not run: only root can start a process of another user")
	}
	program := publicCopy(t)
	return Start(t, func(cmd *exec.Cmd) {
		cmd.Path, cmd.Args[0], cmd.Dir = program, program, "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: Nobody, Gid: Nobody}}
		if change != nil {
			change(cmd)
		}
	})
}

// publicCopy is this program where everybody may run it: go test builds it in a folder of the
// user's own.
func publicCopy(t testing.TB) string {
	t.Helper()
	fail := func(err error) {
		if err != nil {
			t.Fatal("a program that another user may run: ", err)
		}
	}
	dir, err := os.MkdirTemp("", "weft-stranger-*")
	fail(err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	fail(os.Chmod(dir, 0o755)) //nolint:gosec // the other user has to come in
	self, err := os.Executable()
	fail(err)
	from, err := os.Open(self)
	fail(err)
	defer from.Close() //nolint:errcheck // it was only read
	program := filepath.Join(dir, "program")
	to, err := os.OpenFile(program, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755) //nolint:gosec // likewise
	fail(err)
	_, err = io.Copy(to, from)
	fail(err)
	fail(to.Close())
	return program
}
