package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
func resultIn(t *testing.T, dir string) (r result) {
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

func TestTheCheckWritesWhatBecameOfEachStep(t *testing.T) {
	scripts := tests(`[ "$WEFT_GPU" = interpreter ] && echo PASS`)
	scripts["gen.test"] = `echo "=== RUN TestX"; echo "--- FAIL: TestX | of a table"; exit 3`
	delete(scripts, "autodiff.test")
	out := t.TempDir()
	code, said, errs := gpucheck(t, "-device", "interpreter", "-dir", bundle(t, scripts), "-out", out, "-rounds", "1",
		"-only", "driver,kernels,generated,gradients,bench copy,bench launch")
	require.Equal(t, 1, code, errs)
	require.Contains(t, said, "--- FAIL: TestX")
	r := resultIn(t, out)
	verdicts := map[string]string{}
	for _, s := range r.Steps {
		verdicts[s.Name] = s.Verdict
	}
	require.Equal(t, map[string]string{
		"device": ok, "driver": ok, "kernels": ok, "generated kernels": failed, "gradients": leftOut,
		"bench copy 1": ok, "bench copy 2": ok, "bench launch 1": ok, "bench launch 2": ok,
	}, verdicts)
	require.False(t, r.Green)
	require.Equal(t, complete, r.State)
	require.Equal(t, "unknown", r.Commit)
	page, err := os.ReadFile(filepath.Join(out, "result.md"))
	require.NoError(t, err)
	for _, want := range []string{"| driver | ok |", `--- FAIL: TestX \| of a table`, "| copy | ", "| launch instruction (graph) | ", "# gpucheck on PTX machine", "softmax"} {
		require.Contains(t, string(page), want)
	}
}

func TestTheCheckIsGreenWhereNothingOfWeftsIsMissingOrWrong(t *testing.T) {
	code, _, errs := gpucheck(t, "-device", "interpreter", "-dir", bundle(t, tests("echo PASS")), "-out", t.TempDir(), "-only", "driver,fault,kernels,device")
	require.Zero(t, code, errs)
	code, _, _ = gpucheck(t, "-device", "interpreter", "-dir", bundle(t, tests("echo PASS")), "-out", t.TempDir(), "-only", "driver", "-budget", "1ns")
	require.Equal(t, 1, code, "what must be shown was not")

	at := func(verdict string, must, aside bool) bool {
		return green(result{State: complete, GPU: &gpuReport{}, Steps: []outcome{{Verdict: verdict, Must: must, Aside: aside}}})
	}
	require.True(t, at(failed, false, true), "PyTorch's failures are its own")
	require.True(t, at(leftOut, false, false))
	require.False(t, at(failed, false, false))
	require.False(t, at(late, false, false))
	require.True(t, green(result{State: complete, GPU: &gpuReport{}}))
	require.False(t, green(result{State: complete, GPU: &gpuReport{LoadErrors: map[string]string{"rows": "bad"}}}))
	require.False(t, green(result{State: complete}), "the GPU has said nothing")
	require.False(t, green(result{State: running, GPU: &gpuReport{}}))
}

func TestTheStepsShareWhatTheDriverCompilesAndItIsNotLeftBehind(t *testing.T) {
	seen := filepath.Join(t.TempDir(), "seen")
	scripts := tests(`[ -w "$CUDA_CACHE_PATH" ] && echo "$CUDA_CACHE_PATH" >>` + seen + "; echo PASS")
	check := func() []string {
		require.NoError(t, os.RemoveAll(seen))
		code, _, errs := gpucheck(t, "-device", "interpreter", "-dir", bundle(t, scripts), "-out", t.TempDir(), "-only", "driver,kernels")
		require.Zero(t, code, errs)
		raw, err := os.ReadFile(seen)
		require.NoError(t, err)
		return strings.Fields(string(raw))
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
