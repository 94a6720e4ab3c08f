//go:build gpu && linux && (amd64 || arm64)

package native_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/device/cuda/native"
	interpreter "github.com/weft-project/weft/internal/ptx"
)

// tensorMap is a map of 4 KiB.
func tensorMap(at uintptr) cuda.TensorMap {
	return cuda.TensorMap{At: at, Extents: [4]uint64{40, 3, 2, 4}, Strides: [3]uint64{160, 480, 960}, Box: [4]uint32{64, 16, 1, 1}}
}

func TestTheFakeEncodesMapsAsTheInterpreterReadsThem(t *testing.T) {
	d, err := native.Open(0)
	require.NoError(t, err)
	for _, change := range []func(*cuda.TensorMap){
		func(*cuda.TensorMap) {}, func(x *cuda.TensorMap) { x.At = 8 }, func(x *cuda.TensorMap) { x.At = 0 }, func(x *cuda.TensorMap) { x.Extents[2] = 0 },
		func(x *cuda.TensorMap) { x.Strides[1] = 24 }, func(x *cuda.TensorMap) { x.Box[0] = 72 }, func(x *cuda.TensorMap) { x.Box[1] = 257 }, func(x *cuda.TensorMap) { x.Box[0] = 4 },
	} {
		x := tensorMap(1 << 20)
		change(&x)
		got, err := d.(cuda.Mapper).EncodeMap(x)
		want, refused := interpreter.New(interpreter.Config{}).EncodeMap(x)
		if refused != nil {
			require.ErrorContains(t, err, "cuTensorMapEncodeTiled: CUDA error 1")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	gpu.Set("unmapped", 1)
	_, err = d.(cuda.Mapper).EncodeMap(tensorMap(1 << 20))
	gpu.Set("unmapped", 0)
	require.ErrorIs(t, err, cuda.ErrNoMaps)
	require.NoError(t, d.Close())
	_, err = d.(cuda.Mapper).EncodeMap(tensorMap(1 << 20))
	require.ErrorIs(t, err, device.ErrClosed)
	gpu.Set("arch", 80)
	defer gpu.Set("arch", 90)
	d, err = native.Open(0)
	require.NoError(t, err)
	_, err = d.(cuda.Mapper).EncodeMap(tensorMap(1 << 20))
	require.ErrorIs(t, err, cuda.ErrNoMaps)
	require.NoError(t, d.Close())
}
