//go:build unix

package pipe

import (
	"errors"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Inherited is a pipe that this process was started with, whose reads end when it is closed. What
// is not that pipe is left alone.
func Inherited(fd int, id, name string) (*os.File, error) {
	var is unix.Stat_t
	if err := unix.Fstat(fd, &is); err != nil {
		return nil, err
	}
	if is.Mode&unix.S_IFMT != unix.S_IFIFO || id != "" && id != strconv.FormatUint(is.Ino, 10) {
		return nil, errors.New("it is another file")
	}
	if err := syscall.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Offer writes to a pipe what there is room for now, and says how much that was.
func Offer(pipe *os.File, b []byte) (n int) {
	raw, err := pipe.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Write(func(fd uintptr) bool {
		if n, err = syscall.Write(int(fd), b); err != nil {
			n = 0
		}
		return true
	})
	return n
}

// ID tells a pipe from others, for Inherited.
func ID(pipe *os.File) string {
	if info, err := pipe.Stat(); err == nil {
		if is, ok := info.Sys().(*syscall.Stat_t); ok {
			return strconv.FormatUint(is.Ino, 10)
		}
	}
	return ""
}
