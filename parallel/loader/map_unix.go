//go:build unix

package loader

import (
	"os"

	"golang.org/x/sys/unix"
)

// mapped is a file's bytes, to be read, and what ends that.
func mapped(f *os.File, size int) (raw []byte, unmap func() error, err error) {
	raw, err = unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, os.NewSyscallError("mmap", err)
	}
	return raw, func() error { return os.NewSyscallError("munmap", unix.Munmap(raw)) }, nil
}
