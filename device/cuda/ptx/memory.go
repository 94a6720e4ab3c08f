package ptx

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/weft-project/weft/device"
)

// Where memories begin, of all that lie in one address space. What is below and between belongs to
// nobody.
const (
	sharedWindow = 0x7d_0000_0000
	localWindow  = 0x7e_0000_0000
	globalBase   = 0x7f00_0000_0000
	guard        = 4096
)

// spaceAt says what memory a generic address is of.
func spaceAt(q uint64) space {
	switch {
	case q >= sharedWindow && q < localWindow:
		return shared
	case q >= localWindow && q < localWindow+1<<32:
		return local
	}
	return global
}

// alloc is an allocation. Its addresses are never used again.
type alloc struct {
	base     uint64
	size     uint64
	mem      []byte
	readOnly bool
	own      bool   // counts as the machine's memory
	lent     bool   // is somebody else's: see Lend
	origin   *alloc // of an import: what another machine has
	freed    bool
	writers  []uint32 // of each byte: the number of the block, where races are looked for
}

// memory is the allocations of a machine, by address.
type memory struct {
	live  []*alloc
	freed []*alloc // the latest, without their bytes
	next  uint64
	used  int
	limit int
}

// keptFreed is how many freed allocations are remembered, to be named in faults.
const keptFreed = 4096

func (m *memory) alloc(n int) (*alloc, error) {
	if n <= 0 {
		return nil, errors.New("no bytes asked for")
	}
	if n > m.limit-m.used {
		return nil, fmt.Errorf("%w: %d bytes asked for, %d of %d are free", device.ErrMemory, n, m.limit-m.used, m.limit)
	}
	mem := make([]byte, n)
	fill(mem)
	m.used += n
	a := m.add(mem)
	a.own = true
	return a, nil
}

// add gives bytes an address.
func (m *memory) add(mem []byte) *alloc {
	if m.next == 0 {
		m.next = globalBase
	}
	a := &alloc{base: m.next, size: uint64(len(mem)), mem: mem}
	m.next += (uint64(len(mem))+255)&^255 + guard
	m.live = append(m.live, a)
	return a
}

// room is how many bytes are free.
func (m *memory) room() int { return m.limit - m.used }

// Piece is memory of somebody else's, with the address at which kernels see it.
type Piece struct {
	At  uintptr
	Mem []byte
}

// lend puts pieces in the place of those that were lent before.
func (m *memory) lend(pieces []Piece) {
	m.live = slices.DeleteFunc(m.live, func(a *alloc) bool { return a.lent })
	for _, p := range pieces {
		if len(p.Mem) > 0 {
			m.live = append(m.live, &alloc{base: uint64(p.At), size: uint64(len(p.Mem)), mem: p.Mem, lent: true})
		}
	}
	slices.SortFunc(m.live, func(a, b *alloc) int { return cmp.Compare(a.base, b.base) })
}

// at finds the allocation that an address is in.
func (m *memory) at(q uint64) *alloc {
	k := sort.Search(len(m.live), func(k int) bool { return m.live[k].base > q }) - 1
	if k < 0 || q-m.live[k].base >= m.live[k].size {
		return nil
	}
	a := m.live[k]
	if a.origin != nil && a.origin.freed {
		return nil
	}
	return a
}

// remove ends an allocation that begins at an address.
func (m *memory) remove(q uint64) (*alloc, error) {
	k, ok := slices.BinarySearchFunc(m.live, q, func(a *alloc, q uint64) int { return cmp.Compare(a.base, q) })
	if !ok {
		return nil, fmt.Errorf("%w: %s", device.ErrReleased, m.near(q))
	}
	a := m.live[k]
	m.live = slices.Delete(m.live, k, k+1)
	if a.own {
		m.used -= int(a.size)
	}
	a.freed = true
	if len(m.freed) >= keptFreed {
		m.freed = slices.Delete(m.freed, 0, keptFreed/2)
	}
	m.freed = append(m.freed, &alloc{base: a.base, size: a.size})
	return a, nil
}

// bytes gives n bytes at an address, of one allocation.
func (m *memory) bytes(q uint64, n int) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	a := m.at(q)
	if a == nil || n < 0 || uint64(n) > a.size-(q-a.base) {
		return nil, fmt.Errorf("%w: %d bytes at %#x: %s", device.ErrBounds, n, q, m.near(q))
	}
	return a.mem[q-a.base:][:n], nil
}

// near says what lies around an address.
func (m *memory) near(q uint64) string {
	for _, a := range m.freed {
		if q-a.base < a.size {
			return fmt.Sprintf("%#x is in %d bytes at %#x that were freed", q, a.size, a.base)
		}
	}
	k := sort.Search(len(m.live), func(k int) bool { return m.live[k].base > q })
	switch {
	case len(m.live) == 0 || q < globalBase-1<<32:
		return fmt.Sprintf("%#x is no address of this machine", q)
	case k == 0:
		a := m.live[0]
		return fmt.Sprintf("%#x is %d bytes before the %d bytes at %#x", q, a.base-q, a.size, a.base)
	}
	a := m.live[k-1]
	if a.origin != nil && a.origin.freed {
		return fmt.Sprintf("%#x is of memory that was imported, and that its owner has freed", q)
	}
	if q-a.base < a.size {
		return fmt.Sprintf("%#x is byte %d of the %d bytes at %#x", q, q-a.base, a.size, a.base)
	}
	if k < len(m.live) && m.live[k].base-q < q-a.base-a.size {
		b := m.live[k]
		return fmt.Sprintf("%#x is %d bytes before the %d bytes at %#x", q, b.base-q, b.size, b.base)
	}
	return fmt.Sprintf("%#x is %d bytes behind the %d bytes at %#x", q, q-a.base-a.size, a.size, a.base)
}
