package native

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
)

func TestResultsOfTheDriverMeanWhatSomebodyCanActOn(t *testing.T) {
	require.NoError(t, failure("cuInit", 0, ""))
	for code, want := range map[int]error{
		2: device.ErrMemory, 34: cuda.ErrNoDriver, 36: cuda.ErrOldDriver, 100: device.ErrNoDevice, 101: device.ErrNoDevice, 218: cuda.ErrImage,
		222: cuda.ErrOldDriver, 500: cuda.ErrImage, 700: device.ErrLost, 701: cuda.ErrLaunch, 719: device.ErrLost, 803: cuda.ErrOldDriver,
	} {
		err := failure("cuSomething", code, "more")
		require.ErrorIs(t, err, want)
		require.ErrorContains(t, err, "cuSomething: CUDA error ")
		require.ErrorContains(t, err, ": more")
	}
	var e *cuda.Error
	require.ErrorAs(t, failure("cuSomething", 12345, "more"), &e)
	require.Equal(t, cuda.Error{Op: "cuSomething", Code: 12345, Text: "more"}, *e)
}

func TestTheDocumentationOfABuildIsInItsErrors(t *testing.T) {
	if Built {
		return // its errors are tested with a driver
	}
	for _, call := range []func() error{
		func() error { _, err := Count(); return err },
		func() error { _, err := List(); return err },
		func() error { _, err := Default(); return err },
		func() error { _, err := Open(0); return err },
		func() error { _, _, err := Library(); return err },
	} {
		err := call()
		require.ErrorIs(t, err, cuda.ErrNoDriver)
		require.True(t, strings.Contains(err.Error(), "make gpu"), err)
	}
}
