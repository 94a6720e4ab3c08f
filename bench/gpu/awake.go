package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// awake has the GPUs stay initialised between the steps, where nothing else does: it takes the
// driver seconds to start one that nobody has open. It is a process of its own that does so, as the
// driver may not come back.
func awake(self string) (sleep func()) {
	cmd := exec.Command(self, "awake")
	cmd.Env = append(os.Environ(), selfEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	hold, err := cmd.StdinPipe()
	if err != nil || cmd.Start() != nil {
		return func() {}
	}
	go func() { _ = cmd.Wait() }()
	return func() { _ = hold.Close() }
}

// awakeMain is the verb awake: it ends when nobody holds the other end of standard input any more.
func awakeMain(context.Context, []string, io.Writer, io.Writer) error {
	go func() {
		nodes, _ := filepath.Glob("/dev/nvidia[0-9]*")
		for _, node := range nodes {
			_, _ = syscall.Open(node, syscall.O_RDWR|syscall.O_CLOEXEC, 0) // not a file of Go's, which is closed when nobody knows it
		}
	}()
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}
