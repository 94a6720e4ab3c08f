package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// The exit codes of a worker that could not be started, as a shell has them.
const (
	codeNotFound  = 127
	codeNoProgram = 126
)

// StartCode is the exit code of a worker that could not be started.
func StartCode(err error) int {
	if errors.Is(err, fs.ErrNotExist) {
		return codeNotFound
	}
	return codeNoProgram
}

// Remedied is why a worker could not be started, in the system's words, and what to do about it.
// The program is "" where the error is not about it.
func Remedied(err error, program string) error {
	if what := remedy(err, program); what != "" {
		return fmt.Errorf("%w: %s", err, what)
	}
	return err
}

func remedy(err error, program string) string {
	is := func(e syscall.Errno) bool { return errors.Is(err, e) }
	isProgram := program != ""
	_, absent := os.Stat(program)
	switch {
	case is(syscall.ENOEXEC):
		return "it is no program of this kind of machine; a script names its interpreter in its first line, as in #!/bin/sh"
	case is(syscall.ENOENT) && isProgram && absent == nil:
		return "the interpreter that its first line names, or the loader that it needs, is not there"
	case is(syscall.EACCES) && isProgram:
		return "it, the interpreter that its first line names, and their file system must let it be executed"
	case is(syscall.EMFILE):
		return "this process may open no more files; raise ulimit -n, each worker takes 5 to 7"
	case is(syscall.ENFILE):
		return "this machine can open no more files; raise fs.file-max"
	case is(syscall.EAGAIN):
		return "no more processes are allowed; raise ulimit -u, or pids.max of the container"
	case is(syscall.ENOMEM):
		return "this machine, or the container, has no memory left for another process"
	case is(syscall.ENOSPC), is(syscall.EDQUOT):
		return "no space, or no inodes, are left there"
	}
	return ""
}
