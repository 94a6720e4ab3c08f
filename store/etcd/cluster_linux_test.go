package etcd

import (
	"os/exec"
	"syscall"
)

// dieWithUs makes the kernel end cmd if this process ends without doing so.
func dieWithUs(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
