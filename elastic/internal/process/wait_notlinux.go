//go:build !linux

package process

import "syscall"

// dieWithParent has no counterpart here: workers outlive a killed parent until they notice.
func dieWithParent(*syscall.SysProcAttr) {}

// awaitExit says false: here a process cannot be awaited without reaping it.
func awaitExit(int) bool { return false }
