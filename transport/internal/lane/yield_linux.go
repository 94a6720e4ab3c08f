package lane

import "syscall"

// yieldProcessor lets the system run another thread.
func yieldProcessor() { _, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0) }
