//go:build unix

package hostile

import (
	"syscall"
	"time"
)

// cpu is what this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail for oneself
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
