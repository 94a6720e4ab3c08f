package gpumem

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
)

// GPU is a driver's memory as package device wants it, with streams, and pinned memory for
// transfers. Its methods that [device.Memory] has do what that says.
type GPU struct {
	driver  cuda.Driver
	fault   uintptr // FaultBytes
	watcher Watcher

	streams [waiters]cuda.Stream // nil: not used
	events  [sources][ringSize]cuda.Event
	lanes   [sources]lane // of uploads
	down    [2]staging    // of the streams early and ready
	marks   marks
	near    near
	faulted atomic.Bool // the record was cleared at least once
	flags   flags

	// What follows is guarded by mu, which is also held while anything is submitted to sources and
	// the marker, so that they are in the order's order.
	mu      sync.Mutex
	order   order
	telling tellings
	blocks  blocks
	broken  error
}

var _ device.Memory = (*GPU)(nil)

// FaultBytes is the size of a fault record: five numbers of 64 bits. A kernel that finds something
// wrong claims the record by changing the first from 0 to what the routine told it, and then writes
// the others: the offending value, the complement of its place (which grows, as the first place of
// all is wanted), and the bound. Before that it raises its run's flag in the fifth: all who report
// something do.
const FaultBytes = 40

// Fault is what a kernel found wrong.
type Fault struct {
	Code  uint64 // who found it: as the launch was told, never 0
	Value int64  // the offending value
	At    int64  // where
	N     int64  // the bound
}

// FaultError is a [Fault] as an error: what was computed on the GPU from there on is not to be
// used.
type FaultError struct{ Fault }

func (e *FaultError) Error() string { return "a kernel found a value out of range" }

// Watcher hears when the fault record is looked at, and knows more of a fault. It is safe for
// concurrent use, and asks nothing of the GPU.
type Watcher interface {
	// Begin is called before a look, and numbers it.
	Begin() (number int)
	// Clean tells that a look found nothing: no work that was submitted before it began met a fault
	// that is still to be told.
	Clean(number int)
	// Explain is the error of a fault in the place of a FaultError.
	Explain(Fault) error
}

// faultOf reads a record.
func faultOf(record []byte) Fault {
	word := func(k int) uint64 { return binary.LittleEndian.Uint64(record[8*k:]) }
	return Fault{uint64(uint32(word(0))), int64(word(1)), int64(^word(2)), int64(word(3))}
}

// raised are the flags that are up in a record that tells of something; all, where it is not known
// whose the fault is.
func raised(record []byte) (up uint64, known bool) {
	if up = binary.LittleEndian.Uint64(record[32:]); up != 0 {
		return up, true
	}
	return ^uint64(0), false
}

// Config is how a GPU is used. The zero value is ready.
type Config struct {
	Streams int // of kernels, from 1 to 8: as many programs as may run side by side; 0: 4
}

// NewGPU is Config.NewGPU of the zero value.
func NewGPU(d cuda.Driver) (*GPU, error) { return Config{}.NewGPU(d) }

// NewGPU makes a GPU of a driver, which is closed with it.
func (c Config) NewGPU(d cuda.Driver) (*GPU, error) {
	g := &GPU{driver: d, marks: marks{driver: d}}
	if c.Streams == 0 {
		c.Streams = 4
	}
	err := g.openStreams(c.Streams)
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

func (g *GPU) openStreams(streams int) (err error) {
	if streams < 1 || streams > mostStreams {
		return fmt.Errorf("a GPU with %d streams of kernels; it can have from 1 to %d", streams, mostStreams)
	}
	g.order = newOrder(streams)
	for k := range g.streams {
		if k >= streams && k < uploads || k == far {
			continue
		}
		if g.streams[k], err = g.driver.Stream(); err != nil {
			return err
		}
		if k >= sources {
			continue
		}
		for n := range g.events[k] {
			if g.events[k][n], err = g.driver.Event(); err != nil {
				return err
			}
		}
	}
	if g.fault, err = g.driver.Alloc(FaultBytes); err != nil {
		return err
	}
	g.blocks.insert(g.fault, FaultBytes)
	for k := range g.lanes {
		g.lanes[k].belt.size = laneSize(streams + 1)
	}
	for k := range g.down {
		g.down[k].driver = g.driver
	}
	return g.zeroed()
}

// zeroed has all streams wait until the fault record is one.
func (g *GPU) zeroed() error {
	m, err := g.marks.take()
	if err != nil {
		return err
	}
	defer g.marks.give(m)
	if err := errors.Join(g.streams[marker].Zero(g.fault, FaultBytes), g.streams[marker].Record(m.done)); err != nil {
		return err
	}
	return g.follow(g.streams[:], m.done)
}

// follow has streams wait for an event of the marker.
func (g *GPU) follow(streams []cuda.Stream, done cuda.Event) error {
	for k, s := range streams {
		if s == nil || k == marker {
			continue
		}
		if err := s.Wait(done); err != nil {
			return err
		}
	}
	return nil
}

// finish waits for streams. A lost device says so once.
func finish(streams []cuda.Stream) error {
	var errs []error
	for _, s := range streams {
		if s == nil {
			continue
		}
		if errs = append(errs, s.Sync()); errors.Is(errs[len(errs)-1], device.ErrLost) {
			break
		}
	}
	return errors.Join(errs...)
}

// Watch has somebody hear of faults. It is called before anything is asked of the GPU.
func (g *GPU) Watch(w Watcher) { g.watcher = w }

// Driver is what the GPU was made of.
func (g *GPU) Driver() cuda.Driver { return g.driver }

// FaultAddr is where the fault record lies.
func (g *GPU) FaultAddr() uintptr { return g.fault }

// Take is Memory's.
func (g *GPU) Take(n int) (uintptr, error) {
	at, err := g.driver.Alloc(n)
	if err == nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.blocks.insert(at, n)
	}
	return at, err
}

var (
	_ device.Sized = (*GPU)(nil)
	_ device.Roomy = (*GPU)(nil)
)

// Size is Sized's.
func (g *GPU) Size() int { return g.driver.Info().Memory }

// Room is Roomy's.
func (g *GPU) Room() (free, total int64, err error) {
	n, err := g.driver.Room()
	return int64(n), int64(g.Size()), err
}

// Give is Memory's. Work under way may still use the bytes: Free waits for it.
func (g *GPU) Give(at uintptr, _ int) {
	g.mu.Lock()
	g.blocks.remove(at)
	g.mu.Unlock()
	_ = g.driver.Free(at)
}

// Close is Memory's.
func (g *GPU) Close() error {
	errs := []error{finish(g.streams[:])}
	for _, s := range g.streams {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	for k := range g.events {
		for _, e := range g.events[k] {
			if e != nil {
				errs = append(errs, e.Close())
			}
		}
	}
	for k := range g.lanes {
		errs = append(errs, g.lanes[k].close(g.driver))
	}
	errs = append(errs, g.down[0].Close(), g.down[1].Close(), g.marks.Close())
	if g.fault != 0 {
		errs = append(errs, g.driver.Free(g.fault))
	}
	return errors.Join(append(errs, g.driver.Close())...)
}
