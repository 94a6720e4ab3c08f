//go:build gpu && linux && (amd64 || arm64)

package doctor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device/cuda/native"
	"github.com/weft-project/weft/internal/fakecuda"
)

// It happens in a process of its own: another test may have looked for a GPU already, and the
// driver is opened once.
func TestADeviceReportThroughTheDriverSaysHowMuchMemoryIsFree(t *testing.T) {
	lib := fakecuda.Alone(t)
	if lib == nil {
		return
	}
	lib.Set("memory", 1<<30)
	lib.Set("devices", 2)
	busy, err := native.Open(1)
	require.NoError(t, err)
	_, err = busy.Alloc(256 << 20)
	require.NoError(t, err)
	out := examineCUDA(false)
	require.Len(t, out, 4)
	require.Regexp(t, `^cuda:0 is .*, 1\.0 GiB, .*, 1\.0 free$`, out[0].text)
	require.Equal(t, good, out[0].verdict)
	require.Regexp(t, `^cuda:1 is .*, 0\.8 free$`, out[1].text)
	require.NotContains(t, examineCUDA(true)[0].text, "free")
}
