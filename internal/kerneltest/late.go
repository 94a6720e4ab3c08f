package kerneltest

import (
	"errors"
	"sync"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/backend"
)

// NewLate makes a device that is no [device.Launcher] and tells of bad indices at the next
// download, as a GPU does. It computes on copies on the host.
func NewLate(id device.ID) *device.Accelerator {
	return device.Over(id, &lateMemory{}, 0)
}

// lateMemory is blocks of Go memory. An address is a block's number, from 1 on, in the upper half,
// and a place in it in the lower.
type lateMemory struct {
	mu     sync.Mutex
	blocks [][]byte // nil: given back
	bad    error
}

func (m *lateMemory) Take(n int) (uintptr, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.blocks = append(m.blocks, make([]byte, n))
	return uintptr(len(m.blocks)) << 32, nil
}

func (m *lateMemory) Give(at uintptr, _ int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.blocks[at>>32-1] = nil
}

// bytes are n bytes from an address on. The caller holds the lock.
func (m *lateMemory) bytes(at uintptr, n int) []byte {
	if n == 0 {
		return nil
	}
	return m.blocks[at>>32-1][uint32(at):][:n]
}

func (m *lateMemory) Upload(at uintptr, src []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	copy(m.bytes(at, len(src)), src)
	return nil
}

func (m *lateMemory) Download(dst []byte, at uintptr) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	copy(dst, m.bytes(at, len(dst)))
	err := m.bad
	m.bad = nil
	return err
}

func (m *lateMemory) Move(dst, src uintptr, n int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	copy(m.bytes(dst, n), m.bytes(src, n))
	return nil
}

func (m *lateMemory) Close() error { return nil }

// Backend is [kernels.Computer]'s.
func (m *lateMemory) Backend() kernels.Backend { return lateBackend{m} }

type lateBackend struct{ m *lateMemory }

func (b lateBackend) Name() string { return "late" }

func (b lateBackend) Prepare(i kernels.Instr, in []kernels.Type) (kernels.Kernel, error) {
	host, err := backend.For(device.Host())
	if err != nil {
		return nil, err
	}
	k, err := host.Prepare(i, in)
	return lateKernel{b.m, k}, err
}

func (b lateBackend) Assemble(calls []kernels.Call, bufs []int, written []bool) (kernels.Routine, error) {
	host, err := backend.For(device.Host())
	if err != nil {
		return nil, err
	}
	r, err := host.Assemble(calls, bufs, written)
	return lateRoutine{b.m, r}, err
}

type lateKernel struct {
	m *lateMemory
	k kernels.Kernel
}

func (k lateKernel) Run(outs, ins []*device.Buffer) error {
	n := len(outs)
	return k.m.runOnCopies(append(append([]*device.Buffer{}, outs...), ins...), func(bufs []*device.Buffer) error { return k.k.Run(bufs[:n], bufs[n:]) })
}

type lateRoutine struct {
	m *lateMemory
	r kernels.Routine
}

func (r lateRoutine) Run(bufs []*device.Buffer) error { return r.m.runOnCopies(bufs, r.r.Run) }

// runOnCopies has something computed on copies of buffers, and keeps a bad index for the next
// download.
func (m *lateMemory) runOnCopies(bufs []*device.Buffer, compute func([]*device.Buffer) error) (err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	copies, copied := make([]*device.Buffer, len(bufs)), map[*device.Buffer]*device.Buffer{nil: nil}
	for k, b := range bufs {
		if b != nil {
			if acc, ok := b.Device().(*device.Accelerator); !ok || acc.Memory() != device.Memory(m) {
				return &device.Error{Device: b.Device().ID(), Op: "launch", Err: device.ErrElsewhere}
			} else if err := acc.Holds("launch", bufs[k:k+1]); err != nil {
				return err
			}
		}
		c, known := copied[b]
		if !known {
			if c, err = device.Host().Alloc(b.Len()); err != nil {
				return err
			}
			defer c.Release() //nolint:errcheck // ours
			if err := device.Host().Upload(c, 0, m.bytes(b.Addr(), b.Len())); err != nil {
				return err
			}
			copied[b] = c
		}
		copies[k] = c
	}
	err = compute(copies)
	if errors.Is(err, kernels.ErrIndex) {
		m.bad, err = errors.Join(m.bad, err), nil
	}
	for b, c := range copied {
		if b != nil && err == nil {
			err = device.Host().Download(m.bytes(b.Addr(), b.Len()), c, 0)
		}
	}
	return err
}
