//go:build !linux

package elastic

import (
	"os"
	"syscall"
)

// dieWithParent has no counterpart here: workers outlive a killed parent until they notice.
func dieWithParent(*syscall.SysProcAttr) {}

// unnamedErrorFile is none: here only a log folder makes error files.
func unnamedErrorFile() errorFile { return errorFile{} }

// awaitExit says false: here a process cannot be awaited without reaping it.
func awaitExit(int) bool { return false }

// unread is not to be had here.
func unread(*os.File) int { return 0 }
