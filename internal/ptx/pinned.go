package ptx

import (
	"errors"
	"fmt"
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

// checkPinned refuses bytes that are not pinned.
func (p *pinned) checkPinned(b []byte) error {
	if len(b) == 0 || slices.ContainsFunc(p.mem, func(m []byte) bool {
		return start(b) >= start(m) && start(b)+uintptr(len(b)) <= start(m)+uintptr(len(m))
	}) {
		return nil
	}
	return fmt.Errorf("%d bytes of host memory that is not pinned", len(b))
}

func (p *pinned) remove(b []byte) error {
	k := slices.IndexFunc(p.mem, func(m []byte) bool { return len(b) > 0 && start(b) == start(m) })
	if k < 0 {
		return errors.New("memory that Pin did not give, or that was unpinned")
	}
	p.mem = slices.Delete(p.mem, k, k+1)
	return nil
}
