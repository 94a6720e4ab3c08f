//go:build !unix

package elastic

import (
	"os"
	"os/exec"
	"strconv"
	"time"
)

func setGroup(*exec.Cmd) {}

// signalGroup ends the one process: here there are no process groups and no SIGTERM.
func signalGroup(pid int, _ bool) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill()
		_ = p.Release()
	}
}

func statusOf(state *os.ProcessState) status { return status{code: state.ExitCode()} }

func signalName(sig int) string { return "signal " + strconv.Itoa(sig) }

// inherited is a pipe that this process was started with.
func inherited(fd int, _, name string) (*os.File, error) { return os.NewFile(uintptr(fd), name), nil }

// offer writes to a pipe, and says how much; here whoever reads may keep it waiting for a moment.
func offer(pipe *os.File, b []byte) int {
	_ = pipe.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
	n, _ := pipe.Write(b)
	return n
}

// pipeID is not to be had here.
func pipeID(*os.File) string { return "" }
