package main

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device/cuda/native"
	"github.com/weft-project/weft/device/cuda/ptx"
)

// The test binary is also the program: its own steps and workers are this binary with a variable set.
func TestMain(m *testing.M) {
	if os.Getenv("RANK") == "" && os.Getenv(selfEnv) == "" {
		os.Exit(m.Run())
	}
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// gpucheck runs the program.
func gpucheck(t *testing.T, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestTheDeviceReportNamesEveryModule(t *testing.T) {
	code, out, errs := gpucheck(t, "device", "-device", "interpreter")
	require.Zero(t, code, errs)
	var r gpuReport
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	require.Contains(t, r.LoadMS, "softmax")
	require.Empty(t, r.LoadErrors)
	require.Positive(t, r.Memory)
}

func TestModulesForLaterGPUsAreNotLoadedOnEarlierOnes(t *testing.T) {
	for arch, bf16 := range map[int]bool{75: false, 80: true, 90: true} {
		d := ptx.New(ptx.Config{Arch: arch})
		r := gpuReport{LoadMS: map[string]float64{}, LoadErrors: map[string]string{}}
		r.load(d)
		require.NoError(t, d.Close())
		require.Empty(t, r.LoadErrors, arch)
		require.Contains(t, r.LoadMS, "softmax", arch)
		_, loaded := r.LoadMS["bf16"]
		require.Equal(t, bf16, loaded, arch)
	}
}

func TestTheReportHasTheVersionOfTheDriversKernelModule(t *testing.T) {
	file := filepath.Join(t.TempDir(), "version")
	require.Empty(t, kernelModule(file))
	for text, want := range map[string]string{
		"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (x)\nGCC version:  gcc 13.3.0": ", driver 580.159.04",
		"NVRM version: NVIDIA UNIX x86_64 Kernel Module  525.60  Thu":                                                       ", driver 525.60", "nothing": "",
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		require.Equal(t, want, kernelModule(file))
	}
}

func TestWithoutAGPUItSaysWhyAndEndsWithOne(t *testing.T) {
	for _, args := range [][]string{{}, {"device"}, {"bench"}} {
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
	code, _, errs := gpucheck(t, "bench", "-h")
	require.Zero(t, code)
	require.Contains(t, errs, "-rounds")
}

// bundle is a folder with stand-ins for the tests: scripts.
func bundle(t *testing.T, scripts map[string]string) string {
	dir := t.TempDir()
	for name, text := range scripts {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755))
	}
	return dir
}

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
	raw, err := os.ReadFile(filepath.Join(out, "result.json"))
	require.NoError(t, err)
	var r result
	require.NoError(t, json.Unmarshal(raw, &r))
	verdicts := map[string]string{}
	for _, s := range r.Steps {
		verdicts[s.Name] = s.Verdict
	}
	require.Equal(t, map[string]string{
		"driver": ok, "kernels": ok, "generated kernels": failed, "gradients": leftOut,
		"bench copy 1": ok, "bench copy 2": ok, "bench launch 1": ok, "bench launch 2": ok,
	}, verdicts)
	require.False(t, r.Green)
	require.Equal(t, "unknown", r.Commit)
	page, err := os.ReadFile(filepath.Join(out, "result.md"))
	require.NoError(t, err)
	for _, want := range []string{"| driver | ok |", `--- FAIL: TestX \| of a table`, "| copy | ", "| launch instruction (graph) | ", "# gpucheck on PTX machine", "softmax"} {
		require.Contains(t, string(page), want)
	}
}

func TestTheCheckIsGreenWhereNothingOfWeftsIsMissingOrWrong(t *testing.T) {
	code, _, errs := gpucheck(t, "-device", "interpreter", "-dir", bundle(t, tests("exit 0")), "-out", t.TempDir(), "-only", "driver,fault,kernels,device")
	require.Zero(t, code, errs)
	code, _, _ = gpucheck(t, "-device", "interpreter", "-dir", bundle(t, tests("exit 0")), "-out", t.TempDir(), "-only", "driver", "-budget", "1ns")
	require.Equal(t, 1, code, "what must be shown was not")

	at := func(verdict string, must, aside bool) bool {
		return green(result{GPU: &gpuReport{}, Steps: []outcome{{Verdict: verdict, Must: must, Aside: aside}}})
	}
	require.True(t, at(failed, false, true), "PyTorch's failures are its own")
	require.True(t, at(leftOut, false, false))
	require.False(t, at(failed, false, false))
	require.False(t, at(late, false, false))
	require.False(t, green(result{GPU: &gpuReport{LoadErrors: map[string]string{"rows": "bad"}}}))
}

func TestAStepThatIsLateIsEndedWithAllThatItStarted(t *testing.T) {
	dir := bundle(t, map[string]string{"slow": "sleep 600 & echo begun; sleep 600"})
	out := step{name: "slow", argv: []string{"slow"}, limit: 200 * time.Millisecond}.run(t.Context(), dir, time.Hour)
	require.Equal(t, late, out.Verdict)
	require.Less(t, out.Seconds, 60.0)
	out = step{name: "slow", argv: []string{"slow"}, limit: time.Hour}.run(t.Context(), dir, 0)
	require.Equal(t, leftOut, out.Verdict)
}

func TestWhatMayTakeLongIsNotWrongWhenItsTimeIsUp(t *testing.T) {
	dir := bundle(t, map[string]string{"slow": "echo so far; sleep 600", "bad": "exit 9"})
	out := step{name: "slow", argv: []string{"slow"}, limit: 200 * time.Millisecond, long: true}.run(t.Context(), dir, time.Hour)
	require.Equal(t, leftOut, out.Verdict)
	require.Contains(t, out.Why, "so far")
	out = step{name: "bad", argv: []string{"bad"}, limit: time.Minute, long: true}.run(t.Context(), dir, time.Hour)
	require.Equal(t, failed, out.Verdict)
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

func TestTheStepsShareWhatTheDriverCompilesAndItIsNotLeftBehind(t *testing.T) {
	seen := filepath.Join(t.TempDir(), "seen")
	scripts := tests(`[ -w "$CUDA_CACHE_PATH" ] && echo "$CUDA_CACHE_PATH" >>` + seen)
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

func TestAPanicOfACaseIsItsError(t *testing.T) {
	var out bytes.Buffer
	b := &bench{out: json.NewEncoder(&out)}
	require.ErrorIs(t, b.tell(line{Case: "x"}, func(*line) error { panic("oh") }), errFailed)
	require.Contains(t, out.String(), "panic: oh")
	out.Reset()
	b.say(line{Case: "x", MS: math.Inf(1)})
	require.Contains(t, out.String(), "unsupported value")
}

func TestLossesThatDifferAreSeen(t *testing.T) {
	require.Zero(t, off([]float64{1, 2}, []float64{1, 2}))
	require.InDelta(t, 0.5, off([]float64{1, 3}, []float64{1, 2}), 1e-12)
	require.Equal(t, math.MaxFloat64, off([]float64{1, math.NaN()}, []float64{1, 2}))
	require.Equal(t, 2.5, middle([]float64{4, 1, 2, 3}))
}

func TestTheTableSetsEachModeOfPyTorchsBesideWeft(t *testing.T) {
	lines := func(text string) []map[string]any { return linesOf([]byte(text)) }
	table := benchTable([]outcome{
		{Lines: lines(`{"case":"mlp-small","mode":"function","ms":0.2}` + "\nnoise\n" + `{"case":"bound","op":"exp","ms":2,"gbps":1000}`)},
		{Lines: lines(`{"case":"mlp-small","mode":"function","ms":0.4}`)},
		{Aside: true, Lines: lines(`{"case":"device","name":"x"}
{"case":"mlp-small","mode":"eager","ms":3}
{"case":"mlp-small","mode":"compile","ms":0.6}
{"case":"gpt","error":"Out|of memory"}`)},
	})
	require.Equal(t, `
| benchmark | Weft, ms | PyTorch, ms | PyTorch : Weft | |
| --- | --- | --- | --- | --- |
| mlp-small (function) against eager | 0.3 | 3 | 10.00 |  |
| mlp-small (function) against compile | 0.3 | 0.6 | 2.00 |  |
| bound exp | 2 | | | gbps 1000 |
| gpt | | – | | **Out\|of memory** |
`, table)
}
