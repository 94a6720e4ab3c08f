package lenient

import (
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// Start starts cmd with lenient timers. The thread that does it has its own again afterwards.
func Start(cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if own, changed := set(); changed {
		defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(own), 0, 0, 0) }()
	}
	return cmd.Start()
}

// Become begins this program anew with lenient timers, in the same process; it returns where it has
// them already, or cannot. Call it first in main.
func Become() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, changed := set()
	if !changed {
		return
	}
	self, err := os.Executable()
	if err == nil {
		err = unix.Exec(self, os.Args, os.Environ())
	}
	if err != nil { // it does as it is
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(own), 0, 0, 0)
	}
}

// set makes this thread's timers lenient, unless they are. Timers in time are no reason to fail.
func set() (own int, changed bool) {
	own, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil || own >= int(By) {
		return own, false
	}
	return own, unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(By), 0, 0, 0) == nil
}
