package device

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// memfile is a file without a name, in memory: it is gone with the processes that have it.
type memfile struct{ fd int }

const memfileSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// newMemfile makes a file of n bytes that can never be resized, so that no reader of it faults, and maps it.
func newMemfile(n int) (memfile, []byte, error) {
	fd, err := unix.MemfdCreate("weft", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return memfile{}, nil, err
	}
	f := memfile{fd}
	if err = unix.Ftruncate(fd, int64(n)); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, memfileSeals)
	}
	if err != nil {
		_ = unix.Close(fd)
		return memfile{}, nil, err
	}
	mem, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		_ = unix.Close(fd)
		return memfile{}, nil, err
	}
	return f, mem, nil
}

// open opens the file anew: a duplicate of our descriptor could be mapped for writing.
func (f memfile) open() (*os.File, error) {
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", f.fd))
}

// unmap ends the file here.
func (f memfile) unmap(mem []byte) {
	_ = unix.Munmap(mem) // cannot fail with what Mmap gave
	_ = unix.Close(f.fd)
}

// machineMemory is how many bytes the machine has, 0 where that is not known.
func machineMemory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0
	}
	return int64(info.Totalram) * int64(info.Unit)
}

// maxShared is half of the machine's memory: like the heap it is used as the program asks for it, so the bound is only to
// leave room for the heap, which serves what comes beyond.
func maxShared() int64 {
	if n := machineMemory(); n > 0 {
		return n / 2
	}
	return 1 << 30
}

// vacate gives a block's pages back to the system; they are zero when next used.
func vacate(mem []byte) { _ = unix.Madvise(mem, unix.MADV_REMOVE) } // at worst they stay
