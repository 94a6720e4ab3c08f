//go:build gpu && linux && (amd64 || arm64)

package native_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/device/cuda/native"
	"github.com/weft-project/weft/internal/devicetest"
	"github.com/weft-project/weft/internal/fakecuda"
	"github.com/weft-project/weft/internal/gpumem"
)

func TestTheGPUsAreListedAsTheDriverDescribesThem(t *testing.T) {
	all, err := native.List()
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, cuda.Info{Name: "fake GPU 1", UUID: "07070707-0707-0707-0707-070707070701", Arch: 90, Driver: 13000, Processor: 4,
		Memory: 1 << 30, Shared: 232448}, all[1])
	d := open(t)
	require.Equal(t, all[0], d.Info())
}

func TestAGPUThatDoesNotExistIsRefusedByItsNumber(t *testing.T) {
	for _, k := range []int{-1, 2} {
		_, err := native.Open(k)
		require.ErrorIs(t, err, device.ErrNoDevice)
		require.ErrorContains(t, err, "of 2")
	}
}

func TestTheLocalRankPicksAGPUInTurns(t *testing.T) {
	for rank, want := range map[string]int{"": 0, "0": 0, "1": 1, "2": 0, "5": 1} {
		t.Setenv("LOCAL_RANK", rank)
		k, err := native.Default()
		require.NoError(t, err)
		require.Equal(t, want, k, rank)
	}
	for _, rank := range []string{"-1", "first"} {
		t.Setenv("LOCAL_RANK", rank)
		_, err := native.Default()
		require.ErrorContains(t, err, "LOCAL_RANK")
	}
	gpu.Set("devices", 0)
	defer gpu.Set("devices", 2)
	_, err := native.Default()
	require.ErrorIs(t, err, device.ErrNoDevice)
}

func openChild() error {
	_, err := native.Open(0)
	return err
}

// queuesChild fails with how many queues there are.
func queuesChild() error {
	lib, err := fakecuda.Opened()
	if err == nil {
		err = openChild()
	}
	return errors.Join(err, fmt.Errorf("%d queues", lib.Queues()))
}

func TestAGPUTakesWorkFromAsManyQueuesAsThereAreStreamsUnlessTheUserSaysOtherwise(t *testing.T) {
	require.Contains(t, childFails(t, "queues"), "16 queues")
	require.Contains(t, childFails(t, "queues", "CUDA_DEVICE_MAX_CONNECTIONS=4"), "4 queues")
}

// cacheChild fails with whether the driver keeps what it compiles.
func cacheChild() error {
	lib, err := fakecuda.Opened()
	if err == nil {
		err = openChild()
	}
	return errors.Join(err, fmt.Errorf("cached: %v", lib.Cached()))
}

func TestTheDriverKeepsWhatItCompilesUnlessTheUserSaysOtherwise(t *testing.T) {
	require.Contains(t, childFails(t, "cache"), "cached: true")
	require.Contains(t, childFails(t, "cache", "CUDA_CACHE_DISABLE=1"), "cached: false")
}

func TestTheComputeCapabilityIsTheDrivers(t *testing.T) {
	gpu.Set("arch", 75)
	defer gpu.Set("arch", 90)
	all, err := native.List()
	require.NoError(t, err)
	require.Equal(t, 75, all[0].Arch)
}

// childFails starts this program anew and gives what it says when it fails.
func childFails(t *testing.T, child string, env ...string) string {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(append(os.Environ(), "WEFT_TEST_CHILD="+child), env...)
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	return string(out)
}

func TestWithoutADriverOrAGPUTheErrorSaysWhatToDo(t *testing.T) {
	for _, c := range []struct{ env, says string }{
		{"LIBCUDA_PATH=/nonexistent/libcuda.so.1", "no CUDA driver.*/nonexistent/libcuda.so.1: cannot open.*install NVIDIA's driver"},
		{"LIBCUDA_PATH=libm.so.6", "no CUDA driver.*it has no cuInit"},
		{"WEFT_FAKE_INIT=100", "cuInit: CUDA error 100: no such device: no CUDA-capable device: nvidia-smi"},
		{"WEFT_FAKE_INIT=803", "cuInit: CUDA error 803: the CUDA driver is too old: .*different versions"},
		{"WEFT_FAKE_INIT=34", "stub"},
	} {
		require.Regexp(t, c.says, childFails(t, "open", c.env))
	}
}

func TestTheDeviceSuiteHoldsOverTheDriver(t *testing.T) {
	devicetest.Run(t, func(t *testing.T) device.Device {
		g, err := gpumem.NewGPU(open(t))
		require.NoError(t, err)
		d := device.Over(device.CUDA(0), g, 0)
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		return d
	})
}

func TestAFullGPUIsAnErrorAndItsPoolIsGivenBackFirst(t *testing.T) {
	d := open(t)
	free, err := d.Room()
	require.NoError(t, err)
	gpu.Set("memory", 1<<30-free+1<<20) // what the fault tests' lost devices hold stays taken
	defer gpu.Set("memory", 1<<30)
	at, err := d.Alloc(1 << 19)
	require.NoError(t, err)
	_, err = d.Alloc(1<<19 + 1)
	require.ErrorIs(t, err, device.ErrMemory)
	require.ErrorContains(t, err, "cuMemAlloc: CUDA error 2")
	room, err := d.Room()
	require.NoError(t, err)
	require.Equal(t, 1<<19, room)
	require.NoError(t, d.Free(at))

	g, err := gpumem.NewGPU(open(t))
	require.NoError(t, err)
	over := device.Over(device.CUDA(0), g, 0)
	b, err := over.Alloc(1 << 19)
	require.NoError(t, err)
	b.Release()
	b, err = over.Alloc(3 << 18)
	require.NoError(t, err, "what the pool kept must have been given back")
	b.Release()
	require.NoError(t, over.Close())
}

func TestWhatIsClosedSaysSo(t *testing.T) {
	d, err := native.Open(1)
	require.NoError(t, err)
	s, err := d.Stream()
	require.NoError(t, err)
	e, err := d.Event()
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Zero(1, 1), device.ErrClosed)
	require.ErrorIs(t, s.Run(&cuda.List{}), device.ErrClosed)
	require.NoError(t, e.Close())
	require.NoError(t, e.Close())
	require.ErrorIs(t, e.Sync(), device.ErrClosed)
	require.NoError(t, d.Close())
	require.NoError(t, d.Close())
	_, err = d.Alloc(1)
	require.ErrorIs(t, err, device.ErrClosed)
	_, err = d.Load([]byte(ptx))
	require.ErrorIs(t, err, device.ErrClosed)
	_, err = d.Pin(1)
	require.ErrorIs(t, err, device.ErrClosed)
	_, err = d.Stream()
	require.ErrorIs(t, err, device.ErrClosed)
}

func TestBadPTXIsAnErrorWithTheCompilersLog(t *testing.T) {
	d := open(t)
	_, err := d.Load([]byte("nonsense"))
	require.ErrorIs(t, err, cuda.ErrImage)
	require.ErrorContains(t, err, "no .version directive")
	for _, nothing := range []string{"", "\x00", " \n\x00"} { // of which drivers say different things
		_, err = d.Load([]byte(nothing))
		require.ErrorIs(t, err, cuda.ErrImage)
		require.ErrorContains(t, err, "there is no text")
	}
	_, err = d.Load([]byte(".version 99.0"))
	require.ErrorIs(t, err, cuda.ErrOldDriver)
	require.ErrorContains(t, err, "install a newer NVIDIA driver")
}

func TestAModuleGivesItsKernelsWithTheSharedMemoryThatTheyAskFor(t *testing.T) {
	b := newBench(t)
	m, err := b.d.Load([]byte(ptx))
	require.NoError(t, err)
	_, err = m.Func("nothing", 0)
	require.ErrorIs(t, err, cuda.ErrImage)
	require.ErrorContains(t, err, `kernel "nothing"`)
	most := b.d.Info().Shared - 1024
	_, err = m.Func("add", most+1)
	require.ErrorIs(t, err, cuda.ErrLaunch)
	f, err := m.Func("double", most)
	require.NoError(t, err)
	require.Equal(t, "double", f.Name())
	less, err := m.Func("double", 64) // of the same kernel: what was allowed stays allowed
	require.NoError(t, err)
	require.NoError(t, b.s.Zero(b.at, 256))
	var l cuda.List
	add(&l, f, b.at, 0, 3)
	l.Launches[0].Shared = uint32(most)
	require.NoError(t, b.s.Run(&l))
	require.EqualValues(t, 3, b.word(t))
	l.Launches[0].Func = less
	require.ErrorIs(t, b.s.Run(&l), cuda.ErrLaunch)
	require.NoError(t, m.Unload())
	require.NoError(t, m.Unload())
	_, err = m.Func("add", 0)
	require.ErrorIs(t, err, cuda.ErrImage)
}

func TestCopiesRunInTheStreamsOrder(t *testing.T) {
	b := newBench(t)
	other, err := b.d.Alloc(256)
	require.NoError(t, err)
	want := bytes.Repeat([]byte{1, 2, 3, 4}, 64)
	copy(b.pinned, want)
	require.NoError(t, b.s.CopyIn(b.at, b.pinned))
	require.NoError(t, b.s.Copy(other, b.at, 256))
	require.NoError(t, b.s.Zero(other, 8))
	require.NoError(t, b.s.CopyOut(b.pinned, other))
	require.NoError(t, b.s.Sync())
	require.Equal(t, append(make([]byte, 8), want[8:]...), b.pinned)
	require.NoError(t, b.d.Free(other))
	for name, err := range map[string]error{
		"unpinned":         b.s.CopyIn(b.at, make([]byte, 8)),
		"beyond":           b.s.CopyOut(b.pinned, b.at+1),
		"freed":            b.s.Zero(other, 8),
		"freed source":     b.s.Copy(b.at, other, 8),
		"freed twice":      b.d.Free(other),
		"not pinned by us": b.d.Unpin(make([]byte, 8)),
	} {
		require.ErrorContains(t, err, "CUDA error 1:", name)
	}
	require.NoError(t, b.s.CopyIn(b.at, nil))
	require.NoError(t, b.s.CopyOut(nil, b.at))
	require.NoError(t, b.s.Copy(b.at, b.at, 0))
	require.NoError(t, b.s.Zero(b.at, 0))
}
