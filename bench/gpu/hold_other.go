//go:build !linux

package main

import "syscall"

// dieWithParent does nothing here: only Linux has it.
func dieWithParent(*syscall.SysProcAttr) {}
