//go:build !unix

package process

import (
	"os"
	"os/exec"
	"strconv"
)

func setGroup(*exec.Cmd) {}

// signalGroup ends the one process: here there are no process groups and no SIGTERM.
func signalGroup(pid int, _ bool) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill()
		_ = p.Release()
	}
}

func statusOf(state *os.ProcessState) Status { return Status{Code: state.ExitCode()} }

// SignalName is what messages call a signal.
func SignalName(sig int) string { return "signal " + strconv.Itoa(sig) }
