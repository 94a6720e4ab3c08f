package etcdtest

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"syscall"
)

// dieWithUs makes the kernel end cmd if this process ends without doing so.
func dieWithUs(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// host is an address of the loopback on which nobody else is likely to be.
func host() string {
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
}

// folder is where members keep their data: in memory if there is plenty, as nothing is lost there by kill -9, and a sync is free.
func folder() string {
	var fs syscall.Statfs_t
	if err := syscall.Statfs("/dev/shm", &fs); err != nil || uint64(fs.Bsize)*fs.Bavail < 4<<30 {
		return ""
	}
	return "/dev/shm"
}
