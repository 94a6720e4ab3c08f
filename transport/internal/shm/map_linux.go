package shm

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/weft-project/weft/transport/internal/wire"
)

const (
	maxSegments = 1024    // of a peer, at a time
	maxMapped   = 1 << 42 // bytes of them together; what is mapped costs addresses and no memory
)

// mapping is a segment of the peer's, mapped for reading. The channel's mu guards refs: one while
// the peer may point into it, and one for each buffer that lies there.
type mapping struct {
	mem  []byte
	refs int
}

// mapSegment maps the peer's descriptor, which it closes. The memory must be such that nobody can
// take it away under us.
func mapSegment(fd int, size uint64) (*mapping, error) {
	defer unix.Close(fd) //nolint:errcheck // the mapping stays
	var st unix.Stat_t
	var fs unix.Statfs_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, wire.FrameErr("segment", "a file", "%v", err)
	}
	if size == 0 || st.Size < 0 || uint64(st.Size) != size || size > maxMapped {
		return nil, wire.FrameErr("segment", fmt.Sprintf("a file of %d bytes, at most %d", size, uint64(maxMapped)), "%d", st.Size)
	}
	if err := unix.Fstatfs(fd, &fs); err != nil || fs.Type != unix.TMPFS_MAGIC {
		return nil, wire.FrameErr("segment", "a file in memory", "type %#x", fs.Type)
	}
	const fixed = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
	if seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0); err != nil || seals&fixed != fixed {
		return nil, wire.FrameErr("segment", "a file that is sealed against resizing", "seals %#x", seals)
	}
	mem, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, wire.FrameErr("segment", "a file that can be mapped", "%v", os.NewSyscallError("mmap", err))
	}
	return &mapping{mem: mem, refs: 1}, nil
}

// dropLocked gives up a reference.
func (m *mapping) dropLocked() {
	if m.refs--; m.refs == 0 {
		_ = unix.Munmap(m.mem) // cannot fail with what Mmap gave
	}
}
