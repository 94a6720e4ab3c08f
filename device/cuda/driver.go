package cuda

import (
	"errors"
	"fmt"
)

// What can be wrong with a driver, beside the errors of package device; an [Error] says more.
var (
	ErrNoDriver  = errors.New("no CUDA driver")              // libcuda.so.1 is missing, or the program was built without the tag gpu
	ErrOldDriver = errors.New("the CUDA driver is too old")  // for the kernels' PTX
	ErrNoLibrary = errors.New("a CUDA library is missing")   // such as cuBLASLt
	ErrImage     = errors.New("kernels cannot be loaded")    // bad PTX, or an unknown function
	ErrLaunch    = errors.New("a kernel cannot be launched") // arguments or sizes do not fit
)

// Error is what a driver says. It wraps a sentinel of this package or of package device, where one
// fits.
type Error struct {
	Op   string // the driver's function
	Code int    // and its result; 0 where it was not asked
	Text string // what it means, and what to do
	Err  error
}

func (e *Error) Error() string {
	s := e.Op
	if e.Code != 0 {
		s += fmt.Sprintf(": CUDA error %d", e.Code)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.Text != "" {
		s += ": " + e.Text
	}
	return s
}

// Unwrap lets errors.Is find the sentinel.
func (e *Error) Unwrap() error { return e.Err }

// Info describes a GPU.
type Info struct {
	Name      string
	UUID      string
	Arch      int // compute capability: 90 is 9.0
	Driver    int // version of CUDA that the driver supports: 13000 is 13.0
	Processor int // streaming multiprocessors
	Memory    int // bytes
	Shared    int // bytes of shared memory that a block may have on request
	Simulated bool
}

// Driver is one GPU as the hardware's driver shows it. Addresses are the GPU's. It is safe for
// concurrent use.
type Driver interface {
	Info() Info
	// Alloc gives n > 0 bytes, aligned to 256, at once and not in a stream's order;
	// device.ErrMemory where there are not as many.
	Alloc(n int) (at uintptr, err error)
	// Free waits for all work under way where it must, and returns what Alloc gave.
	Free(at uintptr) error
	// Room is how many bytes are free.
	Room() (int, error)
	// Pin gives host memory that streams can copy from and to; Unpin returns it.
	Pin(n int) ([]byte, error)
	Unpin([]byte) error
	// Load makes kernels of PTX text (or a cubin).
	Load(image []byte) (Module, error)
	Stream() (Stream, error)
	Event() (Event, error)
	Timer() (Timer, error)
	// Export gives a handle under which another process of the host can open memory that Alloc
	// gave; Import opens one, until Unimport.
	Export(at uintptr) (Handle, error)
	Import(Handle) (at uintptr, err error)
	Unimport(at uintptr) error
	Close() error
}

// Neighbor is a [Driver] whose GPU may reach others that this process uses. Its streams are
// [Courier]s.
type Neighbor interface {
	// Reach says whether streams can copy straight to memory of another driver, and prepares it.
	Reach(other Driver) (bool, error)
}

// Courier is a [Stream] that copies to other GPUs.
type Courier interface {
	// CopyTo copies n bytes to memory of a driver that is within reach, in the order of this stream
	// alone.
	CopyTo(other Driver, dst, src uintptr, n int) error
}

// Handle names memory of another process, by way of the driver.
type Handle [64]byte

// Module is loaded kernels.
type Module interface {
	// Func finds a kernel. shared is how many bytes of dynamic shared memory its launches may have.
	Func(name string, shared int) (Func, error)
	Unload() error
}

// Func is something that a [Launch] can name: a kernel, or a prepared call of a library. Only the
// driver that made it knows more.
type Func interface{ Name() string }

// Stream is a queue of work, which runs in order. What is copied from or to host memory must be
// pinned, and stay untouched until the stream has come so far.
type Stream interface {
	CopyIn(at uintptr, src []byte) error
	CopyOut(dst []byte, at uintptr) error
	Copy(dst, src uintptr, n int) error
	// Zero clears n bytes.
	Zero(at uintptr, n int) error
	// Run submits launches, all or none where one is refused. It keeps nothing of the list.
	Run(*List) error
	// Record has an event happen when the stream has come so far; Wait has the stream wait for an
	// event's last Record.
	Record(Event) error
	Wait(Event) error
	// Sync waits until all is done, and gives the error of what failed.
	Sync() error
	// Capture records what submit puts into the stream instead of doing it. Nobody else may use the
	// stream until it returns: that would be recorded, too.
	Capture(submit func() error) (Graph, error)
	// Replay submits a graph of this stream's driver.
	Replay(Graph) error
	Close() error
}

// Event is a point in a stream.
type Event interface {
	// Sync waits for it.
	Sync() error
	Close() error
}

// Timer is an event that knows when it happened, which costs a stream more.
type Timer interface {
	Event
	// Since is how many milliseconds passed from another timer to this; both have happened.
	Since(Timer) (float64, error)
}

// Graph is launches that were recorded, with their arguments.
type Graph interface{ Close() error }
