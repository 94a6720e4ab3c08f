//go:build unix

package hostile

import (
	"syscall"
	"time"
)

// CPU is how much processor time this process has used.
func CPU() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail for oneself
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
