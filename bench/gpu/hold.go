package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/weft-project/weft/bench/gpu/internal/flags"
	"github.com/weft-project/weft/internal/proctree"
)

// held is what the verb hold says of the process that it holds.
type held struct {
	Err    string         `json:"err,omitempty"` // why there was none
	Code   int            `json:"code"`
	Signal syscall.Signal `json:"signal,omitempty"`
	Left   int            `json:"left,omitempty"`  // processes that it had started and not ended
	Stuck  bool           `json:"stuck,omitempty"` // something is there still, as the system itself holds it
}

const (
	heldFile = 3                // where the verb hold writes a held
	drain    = 2 * time.Second  // how long killed processes may take to be gone; what the system itself holds stays
	look     = time.Millisecond // how often the verb hold looks whether they are: nothing tells of the end of what is no child yet
)

// holdMain is the verb hold: it runs a program, and when that ends, or nobody holds the other end
// of standard input any more, it kills whatever the program has started and is still there, in
// whatever group or session. So a step leaves nothing behind, nor does a check that is killed. Each
// byte of standard input is SIGQUIT to the program, of which one of Go says where all of it is.
func holdMain(_ context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		return flags.Wrong(errors.New("hold: expected a program; this is for gpucheck to start"))
	}
	runtime.LockOSThread() // the kernel kills the program when the thread that has started it ends
	proctree.Adopt()
	syscall.CloseOnExec(heldFile)
	_ = syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{})
	cmd := exec.Command(args[0], args[1:]...) //nolint:gosec // the check names it
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	if err := cmd.Start(); err != nil {
		return held{Err: err.Error()}.record()
	}
	ended := make(chan struct{})
	go func() {
		for one := make([]byte, 1); ; {
			if _, err := os.Stdin.Read(one); err != nil {
				break
			}
			_ = cmd.Process.Signal(syscall.SIGQUIT)
		}
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		select {
		case <-ended:
		case <-time.After(drain):
			_ = held{Stuck: true}.record()
			os.Exit(1)
		}
	}()
	_ = cmd.Wait()
	close(ended)
	h := held{Code: cmd.ProcessState.ExitCode()}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		h.Signal = status.Signal()
	}
	h.Left, h.Stuck = sweep(cmd.Process.Pid)
	return h.record()
}

// record writes it where the check reads it.
func (h held) record() error {
	f := os.NewFile(heldFile, "held")
	if f == nil {
		return errors.New("hold: this is for gpucheck to start")
	}
	return errors.Join(json.NewEncoder(f).Encode(h), f.Close())
}

// sweep kills all that is below this process, and the rest of a group where nothing can be found
// below. It says how many were there, and whether some are still.
func sweep(group int) (found int, stuck bool) {
	left := below()
	found = len(left) // before any is killed
	_ = syscall.Kill(-group, syscall.SIGKILL)
	for until := time.Now().Add(drain); ; time.Sleep(look) {
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if left = below(); len(left) == 0 {
			return found, false
		}
		if time.Now().After(until) {
			return found, true
		}
		found = max(found, len(left))
	}
}

// below lists the processes below this one. Those that have ended are no processes any more.
func below() []int {
	for pid := 1; pid > 0; {
		pid, _ = syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
	}
	return proctree.Below(os.Getpid(), nil)
}
