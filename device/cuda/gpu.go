package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/weft-project/weft/device"
)

// GPU is a driver's memory as package device wants it, with streams, and pinned memory for transfers. Its methods that
// [device.Memory] has do what that says.
type GPU struct {
	driver   Driver
	compute  Stream
	download Stream
	fault    uintptr // FaultBytes
	watcher  Watcher

	up, down staging
	marks    marks
	near     near

	telling sync.Mutex // order of what is asked of the fault record
	told    int        // faults, after each of which it was cleared
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

// Watcher hears when the fault record is looked at, and knows more of a fault. It is safe for concurrent use.
type Watcher interface {
	// Begin is called before a look, and numbers it.
	Begin() (number int)
	// Clean tells that a look found nothing: no work that was submitted before it began met a fault that is still to be told.
	Clean(number int)
	// Explain is the error of a fault in the place of a FaultError. It may be called more than once for one.
	Explain(Fault) error
}

// faultOf reads a record.
func faultOf(record []byte) Fault {
	word := func(k int) uint64 { return binary.LittleEndian.Uint64(record[8*k:]) }
	return Fault{word(0), int64(word(1)), int64(^word(2)), int64(word(3))}
}

// NewGPU makes a GPU of a driver, which is closed with it.
func NewGPU(d Driver) (*GPU, error) {
	g := &GPU{driver: d, marks: marks{driver: d}}
	var errs [4]error
	g.compute, errs[0] = d.Stream()
	g.download, errs[1] = d.Stream()
	g.fault, errs[2] = d.Alloc(FaultBytes)
	if errs[2] == nil && errs[0] == nil {
		errs[3] = g.compute.Zero(g.fault, FaultBytes)
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	g.up.driver, g.down.driver = d, d
	return g, nil
}

// Watch has somebody hear of faults. It is called before anything is asked of the GPU.
func (g *GPU) Watch(w Watcher) { g.watcher = w }

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

// Download is Memory's. What a kernel found wrong before is its error: a [FaultError], or what the watcher says.
func (g *GPU) Download(dst []byte, at uintptr) error {
	g.down.mu.Lock()
	defer g.down.mu.Unlock()
	look, err := g.look()
	if err != nil {
		return err
	}
	if err = g.download.Wait(look.done); err == nil {
		err = g.down.pieces(len(dst), func(p *piece, from, to int) error {
			return errors.Join(g.download.CopyOut(p.mem[:to-from], at+uintptr(from)), g.download.Record(p.done))
		}, func(p *piece, from, to int) {
			copy(dst[from:to], p.mem)
		})
	}
	if err != nil {
		look.drop()
		return err
	}
	return look.end()
}

// Close is Memory's.
func (g *GPU) Close() error {
	var errs []error
	for _, s := range []Stream{g.compute, g.download} {
		if s != nil {
			errs = append(errs, s.Sync(), s.Close())
		}
	}
	errs = append(errs, g.near.close(), g.up.close(), g.down.close(), g.marks.close())
	if g.fault != 0 {
		errs = append(errs, g.driver.Free(g.fault))
	}
	return errors.Join(append(errs, g.driver.Close())...)
}
