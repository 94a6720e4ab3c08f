package nccl

import (
	"context"
	"fmt"
	"runtime"
	"unsafe"
)

// NoColor is Split's color for ranks that are in none of the new communicators.
const NoColor = -1

// Split makes a communicator of the ranks that give the same color, in the order of key, and then
// of rank. All ranks call it; those with NoColor get nil.
func (m *Comm) Split(c context.Context, color, key int, cfg Config) (*Comm, error) {
	if color < NoColor {
		return nil, fmt.Errorf("%w: color %d; expected 0 or more, or NoColor", ErrArgument, color)
	}
	return m.derive(c, cfg, func(child *uintptr, packed *layout) error {
		return m.invoke(commSplit, m.handle, uintptr(color), uintptr(key), uintptr(unsafe.Pointer(child)), uintptr(unsafe.Pointer(packed)))
	})
}

// Shrink makes a communicator without some ranks, which those that stay call. With abort, it first
// ends what is under way, which may wait for the others. NCCL 2.27 and later have it.
func (m *Comm) Shrink(c context.Context, without []int, abort bool, cfg Config) (*Comm, error) {
	if len(without) == 0 {
		return nil, fmt.Errorf("%w: Shrink without a rank to leave out", ErrArgument)
	}
	out, seen := make([]int32, len(without)), map[int]bool{}
	for i, r := range without {
		if r < 0 || r >= m.size || r == m.rank || seen[r] {
			return nil, fmt.Errorf("%w: Shrink without rank %d: it must be one of 0 to %d, not this rank (%d), and named once", ErrArgument, r, m.size-1, m.rank)
		}
		out[i], seen[r] = int32(r), true
	}
	flags := uintptr(0)
	if abort {
		flags = 1
	}
	return m.derive(c, cfg, func(child *uintptr, packed *layout) error {
		return m.invoke(commShrink, m.handle, uintptr(unsafe.Pointer(&out[0])), uintptr(len(out)), uintptr(unsafe.Pointer(child)), uintptr(unsafe.Pointer(packed)), flags)
	})
}

// derive makes a communicator of this one, whose ranks NCCL counts anew.
func (m *Comm) derive(c context.Context, cfg Config, call func(child *uintptr, packed *layout) error) (*Comm, error) {
	var pin runtime.Pinner
	defer pin.Unpin()
	packed, err := cfg.packed(m.lib.version, &pin)
	if err != nil {
		return nil, err
	}
	child := &Comm{lib: m.lib}
	if err = call(&child.handle, packed); err == nil {
		err = m.settle(c)
	}
	if child.handle == 0 {
		m.lib.keep(child)
		return nil, err
	}
	if child, err = child.made(c, err); err != nil {
		return nil, err
	}
	return child, child.number()
}

func (m *Comm) number() error {
	var rank, size int32
	if err := m.invoke(commUserRank, m.handle, uintptr(unsafe.Pointer(&rank))); err != nil {
		return err
	}
	err := m.invoke(commCount, m.handle, uintptr(unsafe.Pointer(&size)))
	m.rank, m.size = int(rank), int(size)
	return err
}

// Scaled makes an operation that multiplies each rank's elements by a factor before they are
// summed. Free it with Unscale, when all that uses it has been submitted.
func (m *Comm) Scaled(t DataType, factor float64) (RedOp, error) {
	const onHost = 1
	var op int32
	var at unsafe.Pointer
	switch f := float32(factor); t {
	case Float32:
		at = unsafe.Pointer(&f)
	case Float64:
		at = unsafe.Pointer(&factor)
	default:
		return 0, fmt.Errorf("%w: a factor for elements of %v; expected float32 or float64", ErrArgument, t)
	}
	err := m.invoke(redOpCreatePreMulSum, uintptr(unsafe.Pointer(&op)), uintptr(at), uintptr(t), onHost, m.handle)
	return RedOp(op), err
}

// Unscale frees what Scaled made.
func (m *Comm) Unscale(op RedOp) error { return m.invoke(redOpDestroy, uintptr(op), m.handle) }

// Alloc gives memory of a GPU that NCCL can use in all ways that it knows (2.19).
func (l *Library) Alloc(gpu Binder, n int) (at uintptr, err error) {
	err = gpu.Within(func() error { return l.invoke(memAlloc, 0, uintptr(unsafe.Pointer(&at)), uintptr(n)) })
	return at, err
}

// Free gives back what Alloc gave.
func (l *Library) Free(gpu Binder, at uintptr) error {
	return gpu.Within(func() error { return l.invoke(memFree, 0, at) })
}

// Register has the communicator know memory, so that it need not copy (2.19). All ranks do, with
// the same sizes, or none.
func (m *Comm) Register(at uintptr, n int) (handle uintptr, err error) {
	err = m.invoke(commRegister, m.handle, at, uintptr(n), uintptr(unsafe.Pointer(&handle)))
	return handle, err
}

// Deregister ends what Register gave.
func (m *Comm) Deregister(handle uintptr) error { return m.invoke(commDeregister, m.handle, handle) }
