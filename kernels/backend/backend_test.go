package backend_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/backend"
)

func TestADeviceWithoutABackendIsNamed(t *testing.T) {
	_, err := backend.For(remote{device.Host()})
	require.ErrorIs(t, err, kernels.ErrNoBackend)
	require.ErrorContains(t, err, "cuda:7")
	_, err = backend.For(nil)
	require.ErrorIs(t, err, kernels.ErrNoBackend)
}

// remote is a device that launches no Go code.
type remote struct{ device.Device }

func (remote) ID() device.ID { return device.CUDA(7) }
