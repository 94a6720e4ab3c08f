package elastic

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithParent has the kernel kill the worker when the thread that starts it ends. Run keeps that
// thread.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// unnamedErrorFile is an error file in memory, which the worker and what it starts find by its
// number here.
func unnamedErrorFile() errorFile {
	fd, err := unix.MemfdCreate("weft-error", unix.MFD_CLOEXEC)
	if err != nil {
		return errorFile{} // a worker can do without
	}
	return errorFile{fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd), os.NewFile(uintptr(fd), "weft-error")}
}

// awaitExit blocks until the process has ended, says true, and leaves it unreaped: as long as it is
// a zombie its group's id cannot be given to another process, so what is left of the group can be
// killed safely.
func awaitExit(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}

// unread is how many bytes lie in a pipe. It is 0 where that cannot be told.
func unread(pipe *os.File) (n int) {
	raw, err := pipe.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ); err != nil {
			n = 0
		}
	})
	return n
}
