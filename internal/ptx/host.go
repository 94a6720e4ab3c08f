package ptx

import (
	"encoding/binary"
	"errors"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/ptx/simt"
)

// Export is Driver's. Only machines of the same [Host] can open the handle.
func (m *Machine) Export(at uintptr) (h cuda.Handle, err error) {
	err = m.do("export", func() error {
		a := m.proc.Memory.At(uint64(at))
		if a == nil || a.Base != uint64(at) || !a.Own {
			return errors.New("what is exported is what Alloc gave, from its beginning")
		}
		m.host.made++
		copy(h[:], "weft ptx")
		binary.LittleEndian.PutUint64(h[8:], m.host.made)
		binary.LittleEndian.PutUint64(h[16:], a.Base)
		if m.host.exports == nil {
			m.host.exports = map[cuda.Handle]*simt.Allocation{}
		}
		m.host.exports[h] = a
		return nil
	})
	return h, err
}

// Import is Driver's.
func (m *Machine) Import(h cuda.Handle) (at uintptr, err error) {
	err = m.do("import", func() error {
		a := m.host.exports[h]
		if a == nil || a.Freed {
			return errors.New("no memory of this host has the handle, or it was freed")
		}
		if m.proc.Memory.At(a.Base) == a {
			return errors.New("memory of this process")
		}
		b := m.proc.Memory.Add(a.Mem)
		b.Origin = a
		m.imports[b.Base] = true
		at = uintptr(b.Base)
		return nil
	})
	return at, err
}

// Range is [cuda.Ranger]'s.
func (m *Machine) Range(at uintptr) (n int, err error) {
	err = m.do("range", func() error {
		a := m.proc.Memory.At(uint64(at))
		if a == nil || a.Base != uint64(at) {
			return errors.New("what has a range is what Alloc or Import gave, from its beginning")
		}
		n = int(a.Size)
		return nil
	})
	return n, err
}

// Unimport is Driver's. It waits for all streams.
func (m *Machine) Unimport(at uintptr) error {
	m.host.mu.Lock()
	defer m.host.mu.Unlock()
	if m.closed {
		return failed("unimport", device.ErrClosed)
	}
	m.drain()
	if !m.imports[uint64(at)] {
		return failed("unimport", errors.New("memory that Import did not give, or that was given back"))
	}
	delete(m.imports, uint64(at))
	_, err := m.proc.Memory.Remove(uint64(at))
	return failed("unimport", err)
}
