//go:build unix

package elastic

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

func setGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
}

// signalGroup signals every process of the group that pid leads. A group that is gone already is
// what was wanted.
func signalGroup(pid int, kill bool) {
	sig := syscall.SIGTERM
	if kill {
		sig = syscall.SIGKILL
	}
	_ = syscall.Kill(-pid, sig)
}

func statusOf(state *os.ProcessState) status {
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return status{code: 128 + int(ws.Signal()), signal: int(ws.Signal())}
	}
	return status{code: state.ExitCode()}
}

func signalName(sig int) string { return unix.SignalName(syscall.Signal(sig)) }

// inherited is a pipe that this process was started with, whose reads end when it is closed. What
// is not that pipe is left alone.
func inherited(fd int, id, name string) (*os.File, error) {
	var is unix.Stat_t
	if err := unix.Fstat(fd, &is); err != nil {
		return nil, err
	}
	if is.Mode&unix.S_IFMT != unix.S_IFIFO || id != "" && id != strconv.FormatUint(is.Ino, 10) {
		return nil, errors.New("it is another file")
	}
	if err := syscall.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// offer writes to a pipe what there is room for now, and says how much that was.
func offer(pipe *os.File, b []byte) (n int) {
	raw, err := pipe.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Write(func(fd uintptr) bool {
		if n, err = syscall.Write(int(fd), b); err != nil {
			n = 0
		}
		return true
	})
	return n
}

// pipeID tells a pipe from others, for inherited.
func pipeID(pipe *os.File) string {
	if info, err := pipe.Stat(); err == nil {
		if is, ok := info.Sys().(*syscall.Stat_t); ok {
			return strconv.FormatUint(is.Ino, 10)
		}
	}
	return ""
}
