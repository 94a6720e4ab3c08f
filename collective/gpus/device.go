package gpus

import (
	"fmt"
	"slices"
	"sync"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/collective/internal/turns"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
)

// Device is a GPU of this process, with the order of all that its communicators submit. Make one
// for each GPU, with Use or On.
type Device struct {
	gpu cuda.Lender         // nil: its driver lends it to nobody
	acc *device.Accelerator // nil: not known
	mem memory              // of it

	mu      sync.Mutex
	line    turns.Line
	jobs    map[turns.Key]*job // whose turn is known, and has not come
	queue   []*job             // whose turn has come
	running *job
}

// job is something to submit. err is set before done is closed.
type job struct {
	of   *Comm
	do   func() error
	done chan struct{}
	err  error
}

// Use makes a device of a GPU, as native.Open gives one. All communicators on that GPU in this
// process are to share it.
func Use(gpu cuda.Lender) *Device { return &Device{gpu: gpu, jobs: map[turns.Key]*job{}} }

// memory is what buffers lie in that are reduced where they are.
type memory interface {
	device.Memory
	Driver() cuda.Driver
	// Mark is [device.Exporter]'s.
	Mark(of ...uintptr) (func() error, error)
}

// On is Use of the GPU of a device, such as package kernels/gpu makes. Groups reduce what lies on
// it there: see [Attach].
func On(a *device.Accelerator) (*Device, error) {
	mem, ok := a.Memory().(memory)
	if !ok {
		return nil, fmt.Errorf("gpus: %w: %v is no GPU with a driver", collective.ErrArguments, a.ID())
	}
	lender, _ := mem.Driver().(cuda.Lender)
	d := Use(lender)
	d.acc, d.mem = a, mem
	return d, nil
}

// has says whether all of some buffers lie on the device.
func (d *Device) has(bufs []*device.Buffer) bool {
	return !slices.ContainsFunc(bufs, func(b *device.Buffer) bool { return b.Device() != device.Device(d.acc) })
}

// lineUp gives an operation a place in the line.
func (d *Device) lineUp(k turns.Key) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.line.Enter(k)
}

// settle has an operation be submitted when its turn comes.
func (d *Device) settle(k turns.Key, times []uint64, j *job) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.jobs[k] = j
	d.push(d.line.Settle(k, times))
}

// stepOut takes an operation out of the line.
func (d *Device) stepOut(k turns.Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.jobs, k)
	d.push(d.line.Leave(k))
}

// push has jobs be run, in order.
func (d *Device) push(keys []turns.Key) {
	for _, k := range keys {
		d.queue = append(d.queue, d.jobs[k])
		delete(d.jobs, k)
	}
	if d.running == nil {
		d.next()
	}
}

// next begins the next job, if there is one, on a goroutine that goes on with those behind it.
func (d *Device) next() {
	if d.running = d.pop(); d.running != nil {
		go d.work(d.running)
	}
}

func (d *Device) pop() *job {
	if len(d.queue) == 0 {
		return nil
	}
	j := d.queue[0]
	d.queue = d.queue[1:]
	return j
}

// work runs a job and those that come behind it, until there are none, or it has been given up.
func (d *Device) work(j *job) {
	for j != nil {
		j.err = j.do()
		close(j.done)
		d.mu.Lock()
		if d.running == j {
			j = d.pop()
			d.running = j
		} else {
			j = nil
		}
		d.mu.Unlock()
	}
}

// abandon forgets all jobs of a communicator. One that is running is no longer waited for.
func (d *Device) abandon(m *Comm) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for k, j := range d.jobs {
		if j.of == m {
			delete(d.jobs, k)
			d.push(d.line.Leave(k))
		}
	}
	d.queue = slices.DeleteFunc(d.queue, func(j *job) bool { return j.of == m })
	if d.running != nil && d.running.of == m {
		d.next()
	}
}
