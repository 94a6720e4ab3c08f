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

func TestGreenIsWhatLacksNothingOfWefts(t *testing.T) {
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
	check := func() (dirs []string) {
		script := `[ -w "$CUDA_CACHE_PATH" ] && echo "$CUDA_CACHE_PATH"; echo "it lacks a kernel" >"$CUBLASLT_LOG_FILE"`
		r := &runner{
			course: newCourse([]step{{name: "a", argv: []string{"a"}, limit: time.Hour}, {name: "b", argv: []string{"a"}, limit: time.Hour}}, time.Now(), time.Hour),
			dir:    bundle(t, map[string]string{"a": script}), out: t.TempDir(), stdout: io.Discard, stderr: io.Discard,
		}
		r.Date = "2026-11-22"
		forget := r.share()
		require.ErrorIs(t, r.run(t.Context()), errFailed, "no GPU was seen")
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

// page is the page of steps that have said something.
func page(steps ...outcome) string {
	r := result{State: complete, Date: "2026-11-23", GPU: &gpuReport{Name: "x"}, Steps: steps}
	r.learn()
	r.Green = green(r)
	return r.markdown()
}

func TestThePageLeavesOutWhatEveryStepPrintsThatEndsWell(t *testing.T) {
	device := progress + "opening the driver\n" + progress + "closing the driver\ndone"
	well := page(outcome{Name: "a", Verdict: ok, Output: "PASS"}, outcome{Name: "b", Verdict: ok, Output: device}, outcome{Name: "c", Verdict: ok, Output: "a warning\ndone"})
	require.NotContains(t, well, "What a printed")
	require.NotContains(t, well, "What b printed")
	require.Contains(t, well, "## What c printed\n\n\ta warning\n")
	require.NotContains(t, well, "done")
	require.Contains(t, page(outcome{Name: "b", Verdict: late, Output: device}), "opening the driver", "it says where it hung")
}

func TestThePageSaysInItsHeadHowItWent(t *testing.T) {
	for want, text := range map[string]string{
		"**complete, and not all is well**: 1 of 1 steps in 0 s, 1 failed.": page(outcome{Name: "a", Verdict: failed}),
		"**running**: 0 of 2 steps in 0 s, 1 running, 1 not run.":           result{State: running, Date: "2026-11-23", Steps: []outcome{{Verdict: running}, {Verdict: waiting}}}.markdown(),
		"**complete, and all is well**":                                     result{State: complete, Green: true, Date: "2026-11-23", GPU: &gpuReport{}}.markdown(),
	} {
		require.Contains(t, text, want)
	}
}

func TestWhatPythonLacksIsToldInWords(t *testing.T) {
	require.Equal(t, "Python: no cublaslt, no cuda, python 3.13.1, torch 2.11.0+cpu.\n\n",
		python(map[string]any{"case": "python", "torch": "2.11.0+cpu", "cuda": nil, "cublaslt": "", "python": "3.13.1"}))
	require.Equal(t, "Python: there is no PyTorch (ImportError: no torch), python 3.\n\n", python(map[string]any{"case": "python", "error": "ImportError: no torch", "python": "3"}))
}
