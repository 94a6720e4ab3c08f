//go:build linux && (amd64 || arm64)

package nvtx

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// child is what a process does that a test started.
const child = "WEFT_TEST_NVTX"

func TestMain(m *testing.M) {
	if os.Getenv(child) == "" {
		os.Exit(m.Run())
	}
	if !On() {
		os.Exit(3)
	}
	outer := Begin("step")
	inner := Begin("mlp at train.go:9")
	outer.End()
	inner.End()
	os.Exit(0)
}

// profiled runs the child under a profiler and gives its exit code and what the profiler wrote.
func profiled(t *testing.T, lib, out string) (code int, text string) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), child+"=1", variable+"="+lib, "WEFT_FAKE_PROFILE="+out)
	said, err := cmd.CombinedOutput()
	if err != nil {
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit, "%s", said)
		code = exit.ExitCode()
	}
	raw, err := os.ReadFile(out)
	if !os.IsNotExist(err) && out != "" {
		require.NoError(t, err)
	}
	return code, string(raw)
}

func TestAProfilerHearsOfRangesAndWithoutOneThereAreNone(t *testing.T) {
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("there is no C compiler, which makes the profiler")
	}
	dir := t.TempDir()
	lib := filepath.Join(dir, "profiler.so")
	said, err := exec.CommandContext(t.Context(), cc, "-Wall", "-Werror", "-shared", "-fPIC", "-o", lib, "testdata/profiler.c").CombinedOutput()
	require.NoError(t, err, "%s", said)
	code, text := profiled(t, lib, filepath.Join(dir, "out"))
	require.Zero(t, code)
	require.Equal(t, "begin 1 step\nbegin 2 mlp at train.go:9\nend 1\nend 2\n", text)
	for name, lib := range map[string]string{"no library": "", "one that is not there": lib + ".gone", "another one": "libc.so.6"} {
		code, text := profiled(t, lib, filepath.Join(dir, name))
		require.Equal(t, 3, code, name)
		require.Empty(t, text, name)
	}
	code, _ = profiled(t, lib, "")
	require.Equal(t, 3, code, "one that refuses")
}

func TestARangeThatNobodyHearsOfCostsNoMemory(t *testing.T) {
	require.False(t, On())
	require.Zero(t, testing.AllocsPerRun(100, func() { Begin("step").End() }))
}

func BenchmarkWithoutAProfiler(b *testing.B) {
	for b.Loop() {
		Begin("step").End()
	}
}
