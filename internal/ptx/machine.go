package ptx

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/ptx/simt"
)

// Config says what machine to make. The zero value gives one of 1 GiB that can do what an H200 can.
type Config struct {
	Bytes   int        // of memory; 0: 1 GiB
	Arch    int        // compute capability; 0: 90
	Late    *rand.Rand // where not nil, streams work as late as they may, in an order drawn from it; it is the machine's from now on
	Races   bool       // find words that two blocks of a launch write, not atomically
	Traffic bool       // count what kernels ask of memory: see Machine.Traffic
	Steps   int64      // instructions of a warp that a launch may have, in sum; 0: 2^28
	Texts   *Texts     // where modules are kept when they are compiled, for other machines, too; nil: nowhere
	Host    *Host      // whose machines open each other's memory; nil: its own
	Peers   bool       // machines of the Host that have it copy straight to one another
	UUID    string     // the same for machines that are one GPU, as several processes of the Host see it; empty: its own
}

// Host is what machines of one computer share. The zero value is ready.
type Host struct {
	mu      sync.Mutex // guards every machine of the host
	freed   *sync.Cond // after Hold
	exports map[cuda.Handle]*simt.Allocation
	made    uint64
}

// Machine is a GPU. Its methods do what [cuda.Driver] says.
type Machine struct {
	host *Host
	conf Config

	// The host's mutex guards what follows.
	proc    simt.Processor
	pinned  pinned
	streams []*stream
	imports map[uint64]bool
	lost    error
	closed  bool
	time    int64                    // advances by one for each instruction, and for each byte moved
	traffic map[string]*simt.Traffic // by kernel
}

var _ cuda.Driver = (*Machine)(nil)

// New makes a machine.
func New(c Config) *Machine {
	if c.Bytes <= 0 {
		c.Bytes = 1 << 30
	}
	if c.Arch <= 0 {
		c.Arch = 90
	}
	if c.Steps <= 0 {
		c.Steps = 1 << 28
	}
	if c.Host == nil {
		c.Host = new(Host)
	}
	return &Machine{host: c.Host, conf: c, proc: simt.Processor{Memory: simt.Memory{Limit: c.Bytes}, Races: c.Races, Limit: c.Steps}, imports: map[uint64]bool{}, traffic: map[string]*simt.Traffic{}}
}

// Info is Driver's.
func (m *Machine) Info() cuda.Info {
	shared := 64 << 10
	switch {
	case m.conf.Arch >= 90:
		shared = 227 << 10
	case m.conf.Arch >= 80:
		shared = 163 << 10
	}
	uuid := m.conf.UUID
	if uuid == "" {
		uuid = fmt.Sprintf("GPU-ptx-%p", m)
	}
	return cuda.Info{Name: "PTX machine", UUID: uuid, Arch: m.conf.Arch, Driver: 11080, Processor: 1,
		Memory: m.conf.Bytes, Shared: shared, Simulated: true}
}

// Steps is how many instructions of warps were run.
func (m *Machine) Steps() int64 {
	m.host.mu.Lock()
	defer m.host.mu.Unlock()
	return m.proc.Steps
}

func failed(op string, err error) error {
	if err == nil {
		return nil
	}
	var known *cuda.Error
	if errors.As(err, &known) {
		return err
	}
	return &cuda.Error{Op: "ptx " + op, Err: err}
}

// do runs f under the mutex, where the machine is well.
func (m *Machine) do(op string, f func() error) error {
	m.host.mu.Lock()
	defer m.host.mu.Unlock()
	switch {
	case m.closed:
		return failed(op, device.ErrClosed)
	case m.lost != nil:
		return failed(op, m.lost)
	}
	err := f()
	if m.lost != nil {
		err = m.lost
	}
	return failed(op, err)
}

func (m *Machine) lose(f error) {
	if m.lost == nil {
		m.lost = fmt.Errorf("%w: %w", device.ErrLost, f)
	}
}

// Alloc is Driver's.
func (m *Machine) Alloc(n int) (at uintptr, err error) {
	err = m.do("alloc", func() error {
		a, err := m.proc.Memory.Alloc(n)
		if err == nil {
			at = uintptr(a.Base)
		}
		return err
	})
	return at, err
}

// Free is Driver's. It waits for all streams.
func (m *Machine) Free(at uintptr) error {
	m.host.mu.Lock()
	defer m.host.mu.Unlock()
	if m.closed {
		return failed("free", device.ErrClosed)
	}
	m.drain()
	if m.imports[uint64(at)] {
		return failed("free", errors.New("memory of another process is given back by Unimport"))
	}
	_, err := m.proc.Memory.Remove(uint64(at))
	return failed("free", err)
}

// Room is Driver's.
func (m *Machine) Room() (n int, err error) {
	err = m.do("room", func() error { n = m.proc.Memory.Room(); return nil })
	return n, err
}

// Pin is Driver's.
func (m *Machine) Pin(n int) (mem []byte, err error) {
	err = m.do("pin", func() error {
		if n <= 0 {
			return errors.New("no bytes asked for")
		}
		mem = m.pinned.add(n)
		return nil
	})
	return mem, err
}

// Unpin is Driver's. It waits for all streams.
func (m *Machine) Unpin(mem []byte) error {
	m.host.mu.Lock()
	defer m.host.mu.Unlock()
	if m.closed {
		return failed("unpin", device.ErrClosed)
	}
	m.drain()
	return failed("unpin", m.pinned.remove(mem))
}

// Close is Driver's. What was allocated is gone with the machine.
func (m *Machine) Close() error {
	m.host.mu.Lock()
	defer m.host.mu.Unlock()
	if m.closed {
		return nil
	}
	m.drain()
	for h, a := range m.host.exports {
		if m.proc.Memory.At(a.Base) == a {
			delete(m.host.exports, h)
			a.Freed = true
		}
	}
	m.closed = true
	m.proc.Memory, m.pinned, m.streams = simt.Memory{}, pinned{}, nil
	return nil
}

// Traffic gives what was asked of memory on a machine with [Config.Traffic], by kernel: those of
// one name are one, of whichever module.
func (m *Machine) Traffic() map[string]simt.Traffic {
	m.host.mu.Lock()
	defer m.host.mu.Unlock()
	all := map[string]simt.Traffic{}
	for name, t := range m.traffic {
		all[name] = *t
	}
	return all
}

// meter gives where a kernel's traffic is counted, or nil.
func (m *Machine) meter(kernel string) *simt.Traffic {
	if !m.conf.Traffic {
		return nil
	}
	if m.traffic[kernel] == nil {
		m.traffic[kernel] = new(simt.Traffic)
	}
	return m.traffic[kernel]
}
