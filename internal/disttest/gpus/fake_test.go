//go:build gpu && !gpucheck && linux

package gpus

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

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
