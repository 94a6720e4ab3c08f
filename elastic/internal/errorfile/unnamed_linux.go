package errorfile

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Unnamed is an error file in memory, which the worker and what it starts find by its number in
// this process.
func Unnamed() File {
	fd, err := unix.MemfdCreate("weft-error", unix.MFD_CLOEXEC)
	if err != nil {
		return File{} // a worker can do without
	}
	return File{fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd), os.NewFile(uintptr(fd), "weft-error")}
}
