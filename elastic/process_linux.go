package elastic

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// dieWithParent has the kernel kill the worker when the thread that starts it ends. Run keeps that thread.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// unnamedErrorFile is an error file in memory, which the worker and what it starts find by its number here.
func unnamedErrorFile() errorFile {
	fd, err := unix.MemfdCreate("weft-error", unix.MFD_CLOEXEC)
	if err != nil {
		return errorFile{} // a worker can do without
	}
	return errorFile{fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd), os.NewFile(uintptr(fd), "weft-error")}
}

// awaitExit blocks until the process has ended, says true, and leaves it unreaped: as long as it is a zombie its group's id cannot
// be given to another process, so what is left of the group can be killed safely.
func awaitExit(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}

// leniency is by how much the timers of a worker without a core of its own may be late. While a Go program has work its runtime wakes every 20 µs
// to look after it; where no core is idle each time stops something that computes. With this it looks once in a millisecond.
const leniency = time.Millisecond

// startLenient starts a worker with such timers. It gets them from the thread that starts it, which has its own again afterwards.
func startLenient(cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if own, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err == nil && own < int(leniency) {
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(leniency), 0, 0, 0) // timers in time are no reason not to start
		defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(own), 0, 0, 0) }()
	}
	return cmd.Start()
}
