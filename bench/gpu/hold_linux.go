package main

import "syscall"

// dieWithParent has the kernel kill a process when the thread that starts it ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
