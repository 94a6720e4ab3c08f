package etcdtest

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithUs makes the kernel end cmd if this process ends without doing so.
func dieWithUs(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// over says whether a process of ours has ended. It can still be waited for.
func over(p *os.Process) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, p.Pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err != nil || info.Signo != 0
}

// folder is where members keep their data: in memory if there is plenty, as nothing is lost there
// by kill -9, and a sync is free.
func folder() string {
	var fs syscall.Statfs_t
	if err := syscall.Statfs("/dev/shm", &fs); err != nil || uint64(fs.Bsize)*fs.Bavail < 4<<30 {
		return ""
	}
	return "/dev/shm"
}
