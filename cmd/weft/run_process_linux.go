package main

import "golang.org/x/sys/unix"

// subreaper makes this process the parent of every process below it that loses its own.
func subreaper() bool { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == nil }
