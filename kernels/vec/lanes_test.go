//go:build goexperiment.simd && amd64

package vec

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestConstantsBeginOnACacheLine(t *testing.T) {
	require.Zero(t, uintptr(unsafe.Pointer(newConstants()))%64)
}
