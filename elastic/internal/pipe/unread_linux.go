package pipe

import (
	"os"

	"golang.org/x/sys/unix"
)

// Counts says that Unread can tell here.
const Counts = true

// Unread is how many bytes lie in a pipe. It is 0 where that cannot be told.
func Unread(pipe *os.File) (n int) {
	raw, err := pipe.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ); err != nil {
			n = 0
		}
	})
	return n
}
