//go:build unix

package private

import (
	"fmt"
	"os"
	"syscall"
)

// atOnce opens a named pipe without waiting for who writes there.
const atOnce = syscall.O_NONBLOCK

// CheckSecret refuses a file that others can read, or could have written. It is the open file that
// is looked at.
func CheckSecret(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && !trusts(owner.Uid) {
		return fmt.Errorf("%s: it belongs to uid %d, and this is uid %d: "+
			"make a file of your own, and run chmod 600 on it", file.Name(), owner.Uid, os.Geteuid())
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("%s: %w, as its mode is %#o: run chmod 600 %s, "+
			"and take a new one if somebody may have read it", file.Name(), ErrOpen, mode, file.Name())
	}
	return nil
}
