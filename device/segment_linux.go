package device

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// memfile is a file without a name, in memory: it is gone with the processes that have it.
type memfile struct{ fd int }

// memfileSeals keep the file's size, so that no reader faults, and keep everybody but our own
// mapping from writing it.
const memfileSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SEAL

// newMemfile makes a file of n bytes, maps it for writing and seals it. Where the system cannot do
// that the error is an errors.ErrUnsupported.
func newMemfile(n, seals int) (f memfile, mem []byte, err error) {
	if f.fd, err = unix.MemfdCreate("weft", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING); err != nil {
		return f, nil, lacking("make files in memory", err)
	}
	if err = unix.Ftruncate(f.fd, int64(n)); err == nil {
		mem, err = unix.Mmap(f.fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		_ = unix.Close(f.fd)
		return f, nil, err
	}
	if err = unix.Fchmod(f.fd, 0o400); err == nil {
		_, err = unix.FcntlInt(uintptr(f.fd), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		f.unmap(mem)
		return f, nil, lacking("seal memory against writing by others, as Linux does from 5.1 on", err)
	}
	return f, mem, nil
}

// lacking says what the system cannot do, unless it is out of memory or of descriptors.
func lacking(what string, err error) error {
	if errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.EMFILE) {
		return err
	}
	return fmt.Errorf("this system does not %s (%w): %w", what, err, errors.ErrUnsupported)
}

// open opens the file anew: a duplicate of our descriptor is not for reading alone.
func (f memfile) open() (*os.File, error) {
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", f.fd))
}

// unmap ends the file here.
func (f memfile) unmap(mem []byte) {
	_ = unix.Munmap(mem) // cannot fail with what Mmap gave
	_ = unix.Close(f.fd)
}

// mapTogether maps whole pages of shared memory, one behind the other, for reading.
func mapTogether(pieces []origin, total int) ([]byte, error) {
	mem, err := unix.Mmap(-1, 0, total, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	at := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	for _, p := range pieces {
		// of no bytes: the old mapping of shared memory stays, beside the new one
		_, _, e := unix.Syscall6(unix.SYS_MREMAP, uintptr(p.at), 0, uintptr(p.n), unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED, at, 0)
		if e != 0 {
			err = e
			break
		}
		at += uintptr(p.n)
	}
	if err == nil {
		err = unix.Mprotect(mem, unix.PROT_READ)
	}
	if err != nil {
		unmapTogether(mem)
		return nil, err
	}
	return mem, nil
}

func unmapTogether(mem []byte) { _ = unix.Munmap(mem) } // cannot fail with what Mmap gave

// machineMemory is how many bytes the machine has, 0 where that is not known.
func machineMemory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0
	}
	return int64(info.Totalram) * int64(info.Unit)
}

// maxShared is half of the machine's memory: like the heap it is used as the program asks for it,
// so the bound is only to leave room for the heap, which serves what comes beyond.
func maxShared() int64 {
	if n := machineMemory(); n > 0 {
		return n / 2
	}
	return 1 << 30
}

// maxSegments is how many segments there may be: a quarter of the descriptors that the process may
// have, and of the mappings.
func maxSegments() int {
	n := 1 << 16 // what Linux allows of mappings
	if b, err := os.ReadFile("/proc/sys/vm/max_map_count"); err == nil {
		if most, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
			n = most
		}
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil && files.Cur < uint64(n) {
		n = int(files.Cur)
	}
	return n / 4
}
