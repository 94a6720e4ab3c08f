//go:build gpu && cgo && linux && (amd64 || arm64)

package native_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/device/cuda/native"
	"github.com/weft-project/weft/device/cuda/nccl"
	"github.com/weft-project/weft/internal/fakenccl"
)

func TestNCCLWorksOnAGPUAndAStreamThatTheDriverLends(t *testing.T) {
	d := open(t)
	s, err := d.Stream()
	require.NoError(t, err)
	defer s.Close()
	lent, handle := d.(cuda.Lender), s.(cuda.Handled).Handle()
	require.NotZero(t, handle)

	var maker fakenccl.Maker
	f, err := maker.Build(t.TempDir(), 21803)
	require.NoError(t, err)
	l, err := nccl.OpenAt(f.Path)
	require.NoError(t, err)
	id, err := l.NewID()
	require.NoError(t, err)
	m, err := l.Init(t.Context(), lent, 1, id, 0, nccl.Config{})
	require.NoError(t, err)
	require.NoError(t, m.Run(handle, nccl.Call{Kind: nccl.Broadcast, Type: nccl.Float32}))
	require.Equal(t, handle, f.Records()[0].Stream)
	require.NoError(t, m.Close(t.Context()))
}

func TestWhatACallFailsWithIsGivenAsItIsAndAClosedDriverLendsNothing(t *testing.T) {
	d, err := native.Open(1)
	require.NoError(t, err)
	own := errors.New("own")
	require.Equal(t, own, d.(cuda.Lender).Within(func() error { return own }))
	require.NoError(t, d.Close())
	require.ErrorIs(t, d.(cuda.Lender).Within(func() error { panic("it is not called") }), device.ErrClosed)
}
