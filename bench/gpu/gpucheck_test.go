package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/bench/gpu/internal/report"
	"github.com/weft-project/weft/device/cuda/native"
)

// The test binary is also the program: its own steps and workers are this binary with a variable
// set.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv("RANK") != "" || os.Getenv(selfEnv) != "":
		os.Exit(program(run))
	case os.Getenv(plantedEnv) != "":
		os.Exit(program(plantedCheck))
	}
	os.Exit(m.Run())
}

// gpucheck runs the program.
func gpucheck(t *testing.T, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

// linesOf is the lines of JSON in what a program printed.
func linesOf(text string) []map[string]any {
	var s said
	w := &splitter{to: &s}
	_, _ = w.Write([]byte(text))
	w.flush()
	return s.lines
}

func TestTheDeviceReportNamesEveryModule(t *testing.T) {
	code, out, errs := gpucheck(t, "device", "-device", "interpreter")
	require.Zero(t, code, errs)
	lines := linesOf(out)
	require.Len(t, lines, 2)
	early, r := report.ReportIn(lines[0]), report.ReportIn(lines[1])
	require.Empty(t, early.LoadMS, "it is told before anything is loaded")
	require.Equal(t, r.Memory, early.Memory)
	require.Contains(t, r.LoadMS, "softmax")
	require.Contains(t, errs, "loading the kernels of softmax", "so who is waited for is known")
	require.Empty(t, r.LoadErrors)
	require.Positive(t, r.Memory)
}

func TestWithoutAGPUItSaysWhyAndEndsWithOne(t *testing.T) {
	for _, args := range [][]string{{"-out", t.TempDir()}, {"device"}, {"bench"}} {
		code, _, errs := gpucheck(t, append(args, "-device", "cuda:99")...)
		require.Equal(t, 1, code)
		require.Regexp(t, `no CUDA driver|no CUDA-capable device|GPU 99 of`, errs)
		require.Equal(t, !native.Built, strings.Contains(errs, "make gpu"))
	}
}

func TestAWrongCommandLineEndsWithTwo(t *testing.T) {
	for _, args := range [][]string{
		{"walk"}, {"bench", "-only", "nothing"}, {"bench", "-device", "cpu"}, {"bench", "-device", "gpu:x"}, {"bench", "more"}, {"-rounds"},
		{"bench", "-device", "interpreter", "-rounds", "0"}, {"-device", "interpreter", "-only", "nothing", "-out", t.TempDir()}, {"worker"},
	} {
		code, _, errs := gpucheck(t, args...)
		require.Equal(t, 2, code, "%v: %s", args, errs)
		require.NotEmpty(t, errs)
	}
	for verb, want := range map[string][]string{
		"":       {`"cpu" is no GPU`, "-rounds 0", "-budget -1s", `-only "nothing,driver,nor": no step's name begins with "nothing", "nor"`, `unexpected argument "more"`},
		"bench":  {`"cpu" is no GPU`, "-rounds 0", `-only "nothing,driver,nor": there is no "nothing", "driver", "nor"; expected some of correct,`, `unexpected argument "more"`},
		"device": {`"cpu" is no GPU`, `unexpected argument "more"`},
		"worker": {`"cpu" is no GPU`, "-rounds 0", "this is for gpucheck to start", `unexpected argument "more"`},
	} {
		args := []string{verb, "-device", "cpu"}
		if verb == "" {
			args = append(args[1:], "-budget", "-1s")
		}
		if verb != "device" {
			args = append(args, "-rounds", "0", "-only", "nothing,driver,nor")
		}
		code, _, errs := gpucheck(t, append(args, "more", "words")...)
		require.Equal(t, 2, code)
		for _, w := range want {
			require.Contains(t, errs, w, "all that is wrong is told at once")
		}
	}
	code, _, errs := gpucheck(t, "bench", "-device", "gpu")
	require.Equal(t, 2, code)
	require.Contains(t, errs, `"gpu" is no GPU; expected cuda:N, as cuda:0, or interpreter; nvidia-smi -L lists the GPUs`)
	code, _, errs = gpucheck(t, "bench", "-h")
	require.Zero(t, code)
	require.Contains(t, errs, "-rounds")
}

func TestAWrongCommandLineIsToldInTheResults(t *testing.T) {
	for wrong, says := range map[string]string{"-devise": "flag provided but not defined: -devise", "-rounds=0": "-rounds 0; expected 1 to 1000"} {
		out := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(out, "result.md"), []byte("unpacking"), 0o600))
		code, _, _ := gpucheck(t, "-out", out, wrong)
		require.Equal(t, 2, code)
		require.Equal(t, "the command line is wrong: "+says, resultIn(t, out).State)
		page, err := os.ReadFile(filepath.Join(out, "result.md"))
		require.NoError(t, err)
		require.Contains(t, string(page), "**the command line is wrong: "+says+"**")
	}
	t.Chdir(t.TempDir())
	code, _, _ := gpucheck(t, "-devise")
	require.Equal(t, 2, code)
	require.NoFileExists(t, "result.json", "nobody has named a folder")
}

func TestTheSanitizerLooksAtMemoryAndNotAtErrorsThatAreAskedFor(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "compute-sanitizer"), []byte("#!/bin/sh\n"), 0o755))
	t.Setenv("PATH", dir)
	for _, s := range plan(options{at: "cuda:0", dir: "/bundle"}) {
		if s.name == "sanitizer" {
			require.Contains(t, s.argv, "--report-api-errors=no")
			require.Contains(t, s.argv, "--error-exitcode=9")
			require.True(t, s.long)
			return
		}
	}
	require.Fail(t, "no step is the sanitizer's")
}
