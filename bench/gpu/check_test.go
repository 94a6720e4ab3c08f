package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/bench/gpu/internal/flags"
	"github.com/weft-project/weft/bench/gpu/internal/report"
)

// bundle is a folder with stand-ins for the tests: scripts.
func bundle(t *testing.T, scripts map[string]string) string {
	dir := t.TempDir()
	for name, text := range scripts {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755))
	}
	return dir
}

// resultIn is the result in a folder.
func resultIn(t *testing.T, dir string) (r report.Result) {
	raw, err := os.ReadFile(filepath.Join(dir, "result.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &r))
	return r
}

// tests are scripts in the place of all tests.
func tests(text string) map[string]string {
	all := map[string]string{}
	for _, name := range []string{"testgpu", "gpu", "gen", "autodiff", "gpus", "digits"} {
		all[name+".test"] = text
	}
	return all
}

func TestTheStepsShareWhatTheDriverCompilesAndItIsNotLeftBehind(t *testing.T) {
	check := func() (dirs []string) {
		script := `[ -w "$CUDA_CACHE_PATH" ] && echo "$CUDA_CACHE_PATH"; echo "it lacks a kernel" >"$CUBLASLT_LOG_FILE"`
		r := &runner{
			course: newCourse([]step{{name: "a", argv: []string{"a"}, limit: time.Hour}, {name: "b", argv: []string{"a"}, limit: time.Hour}}, time.Now(), time.Hour),
			dir:    bundle(t, map[string]string{"a": script}), out: t.TempDir(), stdout: io.Discard, stderr: io.Discard,
		}
		r.Date = "2026-11-22"
		forget := r.share()
		require.ErrorIs(t, r.run(t.Context()), flags.ErrFailed, "no GPU was seen")
		forget()
		for _, o := range r.course.out {
			dir, log, _ := strings.Cut(o.Output, "\n")
			require.Equal(t, "cuBLASLt's log:\nit lacks a kernel", log)
			dirs = append(dirs, dir)
		}
		return dirs
	}
	own := t.TempDir()
	t.Setenv(cacheVariable, own)
	require.Equal(t, []string{own, own}, check(), "who has chosen one keeps it")
	t.Setenv(cacheVariable, "")
	dirs := check()
	require.Len(t, dirs, 2)
	require.Equal(t, dirs[0], dirs[1])
	require.NoDirExists(t, dirs[0])
}

func TestOfALongTextItsBeginningAndItsEndAreKept(t *testing.T) {
	long := "SIGSEGV: segmentation violation" + strings.Repeat(" rax 0x0", told) + " exit status 2"
	said := end(long)
	require.Less(t, len(said), told+10)
	require.Contains(t, said, "SIGSEGV")
	require.Contains(t, said, "exit status 2")
	require.Equal(t, "--- FAIL: TestX", end("=== RUN TestX\n--- FAIL: TestX"))
}
