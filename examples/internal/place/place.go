// Package place opens the device that an example's --device names.
package place

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/device/cuda/native"
	"github.com/weft-project/weft/kernels/gpu"
	"github.com/weft-project/weft/rpc"
)

// Usage explains the flag.
const Usage = "auto, cpu, cuda (LOCAL_RANK's GPU) or cuda:N, the same for all workers; auto is cuda where there is a GPU, and cpu elsewhere"

// GPU is what a worker's GPU is called in its job where none is named, whichever it is on its
// machine: device maps need not know.
var GPU = device.CUDA(0)

// gpus is the GPUs of this machine.
type gpus struct {
	which func() (ordinal int, err error) // where none is named
	open  func(ordinal int) (cuda.Driver, error)
	built bool // this program can use them
}

// Open gives the device, which the caller closes, and says what it is.
func Open(name string) (d *Device, says string, err error) {
	return gpus{native.Default, native.Open, native.Built}.choose(name)
}

// Check says whether the flag means something.
func Check(name string) error {
	if name == "auto" || name == "cpu" || name == "cuda" {
		return nil
	}
	if id, err := device.Parse(name); err != nil || id.Kind != device.KindCUDA || !strings.HasPrefix(name, "cuda:") {
		return fmt.Errorf("expected auto, cpu, cuda or cuda:N")
	}
	return nil
}

// Device is the host, or a GPU.
type Device struct{ device.Device }

// Close closes a GPU.
func (d *Device) Close() error {
	if gpu, ok := d.Device.(*device.Accelerator); ok {
		return gpu.Close()
	}
	return nil
}

// Join makes this process, which a launcher started, a worker of its job: with the device, and with
// maps to those of its peers.
func (d *Device) Join(c context.Context, functions []rpc.Function) (*rpc.Worker, error) {
	rank, _ := strconv.Atoi(os.Getenv("RANK")) // Join says what is wrong with them
	size, _ := strconv.Atoi(os.Getenv("WORLD_SIZE"))
	return rpc.Join(c, rpc.Config{Functions: functions, Devices: d.Extra(), DeviceMaps: d.Maps(Others(rank, size)...)})
}

// Others are the names of a worker's peers.
func Others(rank, size int) (names []string) {
	for i := range size {
		if i != rank {
			names = append(names, fmt.Sprintf("worker%d", i))
		}
	}
	return names
}

// Settle waits for what a device was asked to compute, and says what went wrong with it. The host
// is done when it says so.
func Settle(d device.Device) error {
	if gpu, ok := d.(*device.Accelerator); ok {
		return gpu.Check()
	}
	return nil
}

// Extra is the device as rpc.Config wants it: without the host, which all workers have.
func (d *Device) Extra() []device.Device {
	if d.ID() == (device.ID{}) {
		return nil
	}
	return []device.Device{d.Device}
}

// Maps sends what lies on this worker's GPU to those of its peers.
func (d *Device) Maps(peers ...string) map[string]device.Map {
	maps := map[string]device.Map{}
	for _, p := range peers {
		if d.ID() != (device.ID{}) {
			maps[p] = device.Map{d.ID(): d.ID()}
		}
	}
	return maps
}

// Of is a worker's GPU, or the host where it has none.
func Of(w *rpc.Worker) device.Device { return of(w.Devices()) }

func of(all *device.Set) device.Device {
	for _, id := range all.IDs() {
		if d, err := all.Get(id); err == nil && id.Kind == device.KindCUDA {
			return d
		}
	}
	return device.Host()
}

func (g gpus) choose(name string) (*Device, string, error) {
	if err := Check(name); err != nil {
		return nil, "", fmt.Errorf("--device %s: %w", name, err)
	}
	if name == "cpu" || name == "auto" && !g.built {
		return &Device{device.Host()}, "on the CPU", nil
	}
	d, says, err := g.gpu(name)
	if err != nil && name == "auto" {
		return &Device{device.Host()}, "on the CPU: " + err.Error(), nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("--device %s: %w", name, err)
	}
	return d, says, nil
}

// gpu opens the named GPU, or the one that is this process's.
func (g gpus) gpu(name string) (_ *Device, says string, err error) {
	id, err := device.Parse(name)
	ordinal := id.Index
	if name == "auto" || name == "cuda" {
		id = GPU
		ordinal, err = g.which()
	}
	if err != nil {
		return nil, "", err
	}
	driver, err := g.open(ordinal)
	if err != nil {
		return nil, "", err
	}
	says = fmt.Sprintf("on %v, %s", id, driver.Info().Name)
	if ordinal != id.Index {
		says = fmt.Sprintf("on GPU %d, %s; all workers call theirs %v", ordinal, driver.Info().Name, id)
	}
	d, err := gpu.On(driver, id)
	if err != nil {
		return nil, "", errors.Join(err, driver.Close())
	}
	return &Device{d}, says, nil
}
