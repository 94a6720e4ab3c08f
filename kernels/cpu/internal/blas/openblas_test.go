//go:build (darwin || freebsd || linux) && (amd64 || arm64)

package blas

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/cpu"
)

func TestALibraryThatCannotServeIsAnErrorThatNamesIt(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "libnothing.so")
	_, err := openBLASAt(missing, "")
	require.ErrorContains(t, err, missing)

	c := openFirst([]string{missing, missing}, "")
	require.ErrorContains(t, c.err, missing)
	require.ErrorContains(t, c.err, "1 more")
	require.Equal(t, "gonum", choose("", c, c).name)
}

func TestExtentsBeyond32BitsAreNotHandedToTheLibrary(t *testing.T) {
	require.True(t, Product{M: 1<<31 - 1, N: 1, K: 1}.fits32())
	require.False(t, Product{M: 1 << 31, N: 1, K: 1}.fits32())
	// There is no library: a call that reached them would panic.
	p := Contiguous(false, false, 1<<31, 1, 1)
	require.False(t, Product{M: 1, N: 1, K: 1, LDB: 1 << 31}.fits32())
	require.Panics(t, func() {
		fortranBLAS{calls: new(sync.Pool)}.sgemm(Contiguous(false, false, 1, 1, 1), []float32{1}, []float32{1}, []float32{1})
	})
	require.PanicsWithValue(t, "blas: insufficient length of a", func() { fortranBLAS{}.sgemm(p, []float32{1}, []float32{1}, []float32{1}) })
}

func TestTheUsersCoreGoesBeforeWhatTheProcessorCanRun(t *testing.T) {
	require.Equal(t, "Zen", openBLASCore(func(name string) string { return map[string]string{"OPENBLAS_CORETYPE": "Zen"}[name] }))
	require.Contains(t, []string{"SkylakeX", "Haswell", ""}, openBLASCore(func(string) string { return "" }))
	require.Equal(t, "core Haswell", coreDetail("Haswell", "HASWELL"))
	require.Contains(t, coreDetail("Prescott", "SkylakeX"), "does not know SkylakeX")
}

// TestOpenBLASTakesTheKernelsItIsToldTo asks libraries opened in processes of their own, because
// one is opened once in each.
func TestOpenBLASTakesTheKernelsItIsToldTo(t *testing.T) {
	const child = "WEFT_TEST_BLAS_CHILD"
	if os.Getenv(child) != "" {
		fmt.Println(choose("", openBLAS(), openVectors()).detail)
		return
	}
	asked := []string{""}
	if cpu.X86.HasAVX2 {
		asked = append(asked, "Haswell", "Nehalem")
	}
	for _, set := range asked {
		want := "core " + openBLASCore(func(string) string { return set })
		if want != "core " {
			want += "\n"
		}
		if c := openBLAS(); c.err != nil { // and then it says so
			want = c.err.Error()
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestOpenBLASTakesTheKernelsItIsToldTo$", "-test.v")
		cmd.Env = append(os.Environ(), child+"=1", "OPENBLAS_CORETYPE="+set, "WEFT_BLAS=")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), want, "OPENBLAS_CORETYPE=%q", set)
	}
}
