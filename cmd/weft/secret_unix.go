//go:build unix

package main

import (
	"fmt"
	"os"
	"syscall"
)

// checkSecret refuses a file that others can read, or could have written. It is the open file that is looked at.
func checkSecret(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && owner.Uid != 0 && int(owner.Uid) != os.Getuid() {
		return fmt.Errorf("it belongs to uid %d, and this is uid %d: make a file of your own, and run chmod 600 on it", owner.Uid, os.Getuid())
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("%w, as its mode is %#o: run chmod 600 %s, and take a new one if somebody may have read it", errOpen, mode, file.Name())
	}
	return nil
}
