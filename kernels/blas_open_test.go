//go:build (darwin || freebsd || linux) && (amd64 || arm64)

package kernels

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestALibraryThatCannotServeIsAnErrorThatNamesIt(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "libnothing.so")
	_, err := openBLASAt(missing)
	require.ErrorContains(t, err, missing)

	c := openFirst([]string{missing, missing})
	require.ErrorContains(t, c.err, missing)
	require.ErrorContains(t, c.err, "1 more")
	require.Equal(t, "gonum", chooseBLAS("", c, c).name)
}

func TestExtentsBeyond32BitsAreNotHandedToTheLibrary(t *testing.T) {
	require.True(t, product{m: 1<<31 - 1, n: 1, k: 1}.fits32())
	require.False(t, product{m: 1 << 31, n: 1, k: 1}.fits32())
	// The library's functions are nil: a call that reached them would panic.
	p := contiguous(false, false, 1<<31, 1, 1)
	require.False(t, product{m: 1, n: 1, k: 1, ldb: 1 << 31}.fits32())
	require.Panics(t, func() {
		nativeBLAS{}.sgemm(contiguous(false, false, 1, 1, 1), []float32{1}, []float32{1}, []float32{1})
	})
	require.PanicsWithValue(t, "blas: insufficient length of a", func() { nativeBLAS{}.sgemm(p, []float32{1}, []float32{1}, []float32{1}) })
}
