package testgpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/cudatest"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/internal/testgpu"
)

func open(t *testing.T) cuda.Driver { return testgpu.Open(t, ptx.Config{}) }

func TestTheGPUOfTestsIsADriver(t *testing.T) {
	cudatest.Run(t, cudatest.Suite{Open: open})
}

// The interpreter has no library for products; package native holds a fake one to the same.
func TestTheLibraryOfARealGPUMultipliesByTheDefinition(t *testing.T) {
	d := open(t)
	_, has := d.(cuda.Multiplier)
	require.NoError(t, d.Close())
	require.Equal(t, testgpu.Real(), has)
	if has {
		cudatest.Products(t, open, soak.Cases(40))
	}
}

// On a real GPU the fault stays with the process: gpucheck runs this test in one of its own, and
// nothing else of the suite with it.
func TestAFaultLosesTheGPUOfTests(t *testing.T) {
	cudatest.Run(t, cudatest.Suite{Open: open, Faults: true})
}

func TestTheGPUOfTestsIsWhatTheBuildSays(t *testing.T) {
	d := open(t)
	require.Equal(t, !testgpu.Real(), d.Info().Simulated)
	require.NoError(t, d.Close())
}
