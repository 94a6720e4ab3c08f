package simt

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
	ParameterWindow = 0x7c_0000_0000
	SharedWindow    = 0x7d_0000_0000
	LocalWindow     = 0x7e_0000_0000
	globalBase      = 0x7f00_0000_0000
	guard           = 4096
)

// SpaceAt says what memory a generic address is of.
func SpaceAt(q uint64) Space {
	switch {
	case q >= SharedWindow && q < LocalWindow:
		return Shared
	case q >= ParameterWindow && q < SharedWindow:
		return Parameter
	case q >= LocalWindow && q < LocalWindow+1<<32:
		return Local
	}
	return Global
}

// Allocation is an allocation. Its addresses are never used again.
type Allocation struct {
	Base     uint64
	Size     uint64
	Mem      []byte
	ReadOnly bool
	Own      bool        // counts as the machine's memory
	lent     bool        // is somebody else's: see Lend
	Origin   *Allocation // of an import: what another machine has
	Freed    bool
	writers  []uint32 // of each byte: the number of the block, where races are looked for
}

// Memory is the allocations of a machine, by address.
type Memory struct {
	live  []*Allocation
	freed []*Allocation // the latest, without their bytes
	next  uint64
	used  int
	Limit int
}

// keptFreed is how many freed allocations are remembered, to be named in faults.
const keptFreed = 4096

// Alloc allocates bytes that look as if nobody wrote them.
func (m *Memory) Alloc(n int) (*Allocation, error) {
	if n <= 0 {
		return nil, errors.New("no bytes asked for")
	}
	if n > m.Limit-m.used {
		return nil, fmt.Errorf("%w: %d bytes asked for, %d of %d are free", device.ErrMemory, n, m.Limit-m.used, m.Limit)
	}
	mem := make([]byte, n)
	fill(mem)
	m.used += n
	a := m.Add(mem)
	a.Own = true
	return a, nil
}

// Add gives bytes an address.
func (m *Memory) Add(mem []byte) *Allocation {
	if m.next == 0 {
		m.next = globalBase
	}
	a := &Allocation{Base: m.next, Size: uint64(len(mem)), Mem: mem}
	m.next += (uint64(len(mem))+255)&^255 + guard
	m.live = append(m.live, a)
	return a
}

// Room is how many bytes are free.
func (m *Memory) Room() int { return m.Limit - m.used }

// Piece is memory of somebody else's, with the address at which kernels see it.
type Piece struct {
	At  uintptr
	Mem []byte
}

// Lend puts pieces in the place of those that were lent before.
func (m *Memory) Lend(pieces []Piece) {
	m.live = slices.DeleteFunc(m.live, func(a *Allocation) bool { return a.lent })
	for _, p := range pieces {
		if len(p.Mem) > 0 {
			m.live = append(m.live, &Allocation{Base: uint64(p.At), Size: uint64(len(p.Mem)), Mem: p.Mem, lent: true})
		}
	}
	slices.SortFunc(m.live, func(a, b *Allocation) int { return cmp.Compare(a.Base, b.Base) })
}

// At finds the allocation that an address is in.
func (m *Memory) At(q uint64) *Allocation {
	k := sort.Search(len(m.live), func(k int) bool { return m.live[k].Base > q }) - 1
	if k < 0 || q-m.live[k].Base >= m.live[k].Size {
		return nil
	}
	a := m.live[k]
	if a.Origin != nil && a.Origin.Freed {
		return nil
	}
	return a
}

// Remove ends an allocation that begins at an address.
func (m *Memory) Remove(q uint64) (*Allocation, error) {
	k, ok := slices.BinarySearchFunc(m.live, q, func(a *Allocation, q uint64) int { return cmp.Compare(a.Base, q) })
	if !ok {
		return nil, fmt.Errorf("%w: %s", device.ErrReleased, m.near(q))
	}
	a := m.live[k]
	m.live = slices.Delete(m.live, k, k+1)
	if a.Own {
		m.used -= int(a.Size)
	}
	a.Freed = true
	if len(m.freed) >= keptFreed {
		m.freed = slices.Delete(m.freed, 0, keptFreed/2)
	}
	m.freed = append(m.freed, &Allocation{Base: a.Base, Size: a.Size})
	return a, nil
}

// Bytes gives n bytes at an address, of one allocation.
func (m *Memory) Bytes(q uint64, n int) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	a := m.At(q)
	if a == nil || n < 0 || uint64(n) > a.Size-(q-a.Base) {
		return nil, fmt.Errorf("%w: %d bytes at %#x: %s", device.ErrBounds, n, q, m.near(q))
	}
	return a.Mem[q-a.Base:][:n], nil
}

// near says what lies around an address.
func (m *Memory) near(q uint64) string {
	for _, a := range m.freed {
		if q-a.Base < a.Size {
			return fmt.Sprintf("%#x is in %d bytes at %#x that were freed", q, a.Size, a.Base)
		}
	}
	k := sort.Search(len(m.live), func(k int) bool { return m.live[k].Base > q })
	switch {
	case len(m.live) == 0 || q < globalBase-1<<32:
		return fmt.Sprintf("%#x is no address of this machine", q)
	case k == 0:
		a := m.live[0]
		return fmt.Sprintf("%#x is %d bytes before the %d bytes at %#x", q, a.Base-q, a.Size, a.Base)
	}
	a := m.live[k-1]
	if a.Origin != nil && a.Origin.Freed {
		return fmt.Sprintf("%#x is of memory that was imported, and that its owner has freed", q)
	}
	if q-a.Base < a.Size {
		return fmt.Sprintf("%#x is byte %d of the %d bytes at %#x", q, q-a.Base, a.Size, a.Base)
	}
	if k < len(m.live) && m.live[k].Base-q < q-a.Base-a.Size {
		b := m.live[k]
		return fmt.Sprintf("%#x is %d bytes before the %d bytes at %#x", q, b.Base-q, b.Size, b.Base)
	}
	return fmt.Sprintf("%#x is %d bytes behind the %d bytes at %#x", q, q-a.Base-a.Size, a.Size, a.Base)
}
