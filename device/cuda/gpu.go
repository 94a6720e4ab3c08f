package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/weft-project/weft/device"
)

// GPU is a driver's memory as package device wants it, with streams, and pinned memory for transfers. Its methods that
// [device.Memory] has do what that says.
type GPU struct {
	driver   Driver
	compute  Stream
	download Stream
	fault    uintptr // FaultBytes

	up, down staging
	found    []byte // FaultBytes of pinned memory, which down's lock guards
	marks    marks
}

var _ device.Memory = (*GPU)(nil)

// FaultBytes is the size of a fault record: four numbers of 64 bits. A kernel that finds something wrong claims the record by changing the first from 0
// to what the routine told it, and then writes the others: the offending value, the complement of its place (which grows, as the first place
// of all is wanted), and the bound.
const FaultBytes = 32

// Fault is what a kernel found wrong.
type Fault struct {
	Code  uint64 // who found it: as the launch was told, never 0
	Value int64  // the offending value
	At    int64  // where
	N     int64  // the bound
}

// FaultError is a [Fault] as an error: what was computed on the GPU from there on is not to be used.
type FaultError struct{ Fault }

func (e *FaultError) Error() string { return "a kernel found a value out of range" }

// NewGPU makes a GPU of a driver, which is closed with it.
func NewGPU(d Driver) (*GPU, error) {
	g := &GPU{driver: d}
	var errs [5]error
	g.compute, errs[0] = d.Stream()
	g.download, errs[1] = d.Stream()
	g.fault, errs[2] = d.Alloc(FaultBytes)
	if errs[2] == nil && errs[0] == nil {
		errs[3] = g.compute.Zero(g.fault, FaultBytes)
	}
	g.found, errs[4] = d.Pin(FaultBytes)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	g.up.driver, g.down.driver = d, d
	return g, nil
}

// Driver is what the GPU was made of.
func (g *GPU) Driver() Driver { return g.driver }

// Compute is the stream that kernels run on.
func (g *GPU) Compute() Stream { return g.compute }

// FaultAddr is where the fault record lies.
func (g *GPU) FaultAddr() uintptr { return g.fault }

// Take is Memory's. Where there is no room it says how much there is.
func (g *GPU) Take(n int) (uintptr, error) {
	at, err := g.driver.Alloc(n)
	if errors.Is(err, device.ErrMemory) {
		if free, roomErr := g.driver.Room(); roomErr == nil {
			err = fmt.Errorf("%w: %d bytes asked for, %d free on the GPU; use smaller batches, or end what else uses it", device.ErrMemory, n, free)
		}
	}
	return at, err
}

// Give is Memory's. Work under way may still use the bytes: Free waits for it.
func (g *GPU) Give(at uintptr, _ int) { _ = g.driver.Free(at) }

// Move is Memory's.
func (g *GPU) Move(dst, src uintptr, n int) error { return g.compute.Copy(dst, src, n) }

// Upload is Memory's.
func (g *GPU) Upload(at uintptr, src []byte) error {
	g.up.mu.Lock()
	defer g.up.mu.Unlock()
	return g.up.pieces(len(src), func(p *piece, from, to int) error {
		copy(p.mem, src[from:to])
		return errors.Join(g.compute.CopyIn(at+uintptr(from), p.mem[:to-from]), g.compute.Record(p.done))
	}, nil)
}

// Download is Memory's. A [FaultError] says that a kernel found something wrong before. The record is copied by the stream of kernels, so that none writes
// it meanwhile, and as it was before what others submit from now on.
func (g *GPU) Download(dst []byte, at uintptr) error {
	g.down.mu.Lock()
	defer g.down.mu.Unlock()
	if err := g.down.ready(); err != nil {
		return err
	}
	mark := g.down.mark
	if err := errors.Join(g.compute.CopyOut(g.found, g.fault), g.compute.Record(mark), g.download.Wait(mark)); err != nil {
		return err
	}
	err := g.down.pieces(len(dst), func(p *piece, from, to int) error {
		return errors.Join(g.download.CopyOut(p.mem[:to-from], at+uintptr(from)), g.download.Record(p.done))
	}, func(p *piece, from, to int) {
		copy(dst[from:to], p.mem)
	})
	if err == nil {
		err = mark.Sync() // where there was nothing to copy
	}
	if err != nil {
		return err
	}
	return g.faults()
}

// faults is the error of what was found; the record is ready for the next, once what was submitted is done.
func (g *GPU) faults() error {
	word := func(k int) uint64 { return binary.LittleEndian.Uint64(g.found[8*k:]) }
	if word(0) == 0 {
		return nil
	}
	err := &FaultError{Fault{word(0), int64(word(1)), int64(^word(2)), int64(word(3))}}
	return errors.Join(err, g.compute.Zero(g.fault, FaultBytes))
}

// Close is Memory's.
func (g *GPU) Close() error {
	var errs []error
	for _, s := range []Stream{g.compute, g.download} {
		if s != nil {
			errs = append(errs, s.Sync(), s.Close())
		}
	}
	errs = append(errs, g.up.close(), g.down.close(), g.marks.close())
	if g.found != nil {
		errs = append(errs, g.driver.Unpin(g.found))
	}
	if g.fault != 0 {
		errs = append(errs, g.driver.Free(g.fault))
	}
	return errors.Join(append(errs, g.driver.Close())...)
}
