package journal

import (
	"errors"
	"os"
	"syscall"
)

// Sync leaves out what fsync does beyond the data and the file's size: its times.
func (f osFile) Sync() error {
	for {
		if err := syscall.Fdatasync(int(f.Fd())); !errors.Is(err, syscall.EINTR) {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
