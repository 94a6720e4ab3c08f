package ptx

import (
	"errors"
	"slices"
	"unsafe"
)

// pinned is host memory that streams may copy from and to.
type pinned struct {
	mem [][]byte
}

func start(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

func (p *pinned) add(n int) []byte {
	b := make([]byte, n)
	p.mem = append(p.mem, b)
	return b
}

// has says whether all bytes are pinned.
func (p *pinned) has(b []byte) bool {
	return slices.ContainsFunc(p.mem, func(m []byte) bool {
		return start(b) >= start(m) && start(b)+uintptr(len(b)) <= start(m)+uintptr(len(m))
	})
}

func (p *pinned) remove(b []byte) error {
	k := slices.IndexFunc(p.mem, func(m []byte) bool { return len(b) > 0 && start(b) == start(m) })
	if k < 0 {
		return errors.New("memory that Pin did not give, or that was unpinned")
	}
	p.mem = slices.Delete(p.mem, k, k+1)
	return nil
}
