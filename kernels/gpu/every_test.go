//go:build !race

package gpu_test

import (
	"math/rand/v2"
	"testing"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/kerneltest"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/internal/testgpu"
)

// The interpreter runs on one goroutine, ten times slower under the race detector, which has
// nothing to see there.

func TestEveryInstructionAgreesWithItsDefinition(t *testing.T) {
	d := newGPU(t, ptx.Config{})
	if testgpu.Real() {
		kerneltest.Run(t, func(*testing.T) device.Device { return d })
		return
	}
	kerneltest.RunFew(t, func(*testing.T) device.Device { return d })
}

func TestWhatIsNotFiniteTouchesOnlyWhatDependsOnIt(t *testing.T) {
	d, r := newGPU(t, ptx.Config{}), rand.New(rand.NewPCG(5, 18))
	for range soak.Cases(15) {
		kerneltest.CheckNotFinite(t, d, r)
	}
}
