//go:build gpu && !gpucheck && linux

package gpus

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/device/cuda/native"
	"github.com/weft-project/weft/internal/fakecuda"
	"github.com/weft-project/weft/transport"
)

// interpreted has the fake, which LIBCUDA_PATH names, run kernels by the interpreter.
var interpreted = sync.OnceValue(func() error {
	lib, err := fakecuda.Opened()
	if err == nil {
		lib.Use(fakecuda.Interpreter())
	}
	return err
})

func openFake() (cuda.Driver, error) {
	if err := interpreted(); err != nil {
		return nil, err
	}
	return native.Open(0)
}

// Through the whole of the driver's package: by CUDA IPC, and where that lane is not allowed by
// pinned staging.
func TestTensorsGoBetweenTwoProcessesThroughTheDriverByIPCAndByStaging(t *testing.T) {
	path, err := fakecuda.Build(t.TempDir())
	require.NoError(t, err)
	t.Setenv("LIBCUDA_PATH", path)
	for _, lanes := range [][]string{nil, {transport.LaneLocal}, {transport.LaneQUIC}} {
		t.Run("lanes "+strings.Join(lanes, " "), func(t *testing.T) {
			r := together(t, lanes, true)
			for _, n := range []int{1, 20_001, 20_001, 20_001} {
				r.exchange(t, n)
			}
			r.requireLaneCUDA(t, lanes == nil)
		})
	}
}

// In one shot, in two, and in several halves of the memory that they have open of each other.
func TestBuffersOfTwoProcessesAreAddedUpThroughTheDriverByIPC(t *testing.T) {
	path, err := fakecuda.Build(t.TempDir())
	require.NoError(t, err)
	t.Setenv("LIBCUDA_PATH", path)
	r := together(t, nil, true)
	for _, s := range []sums{{Elems: 1, Rounds: 3}, {Elems: 1000, Rounds: 9}, {Elems: 200_001, Rounds: 3}} {
		require.Equal(t, "CUDA IPC", r.sumTogether(t, s))
		requireNoneOpen(t)
	}
}

// requireNoneOpen looks whether memory of other processes is open here.
func requireNoneOpen(t *testing.T) {
	t.Helper()
	lib, err := fakecuda.Opened()
	require.NoError(t, err)
	require.NotContains(t, strings.Join(lib.Seen().Left, ", "), "imports")
}

func TestAProcessThatIsKilledWhileItAddsUpThroughTheDriverIsNamedAndItsMemoryClosed(t *testing.T) {
	path, err := fakecuda.Build(t.TempDir())
	require.NoError(t, err)
	t.Setenv("LIBCUDA_PATH", path)
	for _, elems := range []int{1000, 200_001} {
		t.Run(fmt.Sprint(elems), func(t *testing.T) {
			r := together(t, nil, true)
			r.told = make(chan struct{})
			go r.other.Ask(t.Context(), "sum", sums{Elems: elems}, nil) //nolint:errcheck // it is killed
			go func() {
				<-r.told
				r.other.Kill()
			}()
			way, err := r.sum(t.Context(), sums{Elems: elems, Tell: 5})
			var lost *collective.LostError
			require.ErrorAs(t, err, &lost)
			require.Equal(t, "worker1", lost.Worker)
			require.Equal(t, "CUDA IPC", way)
			requireNoneOpen(t)
		})
	}
}
