package etcdtest

import (
	"os/exec"
	"syscall"
)

// dieWithUs makes the kernel end cmd if this process ends without doing so.
func dieWithUs(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// folder is where members keep their data: in memory if there is plenty, as nothing is lost there by kill -9, and a sync is free.
func folder() string {
	var fs syscall.Statfs_t
	if err := syscall.Statfs("/dev/shm", &fs); err != nil || uint64(fs.Bsize)*fs.Bavail < 4<<30 {
		return ""
	}
	return "/dev/shm"
}
