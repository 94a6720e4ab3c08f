//go:build !race

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/bench/gpu/internal/report"
)

// The interpreter runs on one goroutine, ten times slower under the race detector, which has
// nothing to see there.

func TestEveryBenchmarkRunsOnTheInterpreterAndItsLossesAreTheCPUs(t *testing.T) {
	_, out, errs := gpucheck(t, "bench", "-device", "interpreter", "-rounds", "1")
	require.Empty(t, errs)
	var attention []string // the modes
	seen, printed := map[string]int{}, map[string]bool{}
	for _, l := range linesOf(out) {
		name := l["case"].(string)
		require.NotContains(t, l, "error", "%v", l)
		seen[name]++
		if op, has := l["op"]; has {
			name += " " + op.(string)
		}
		printed[name] = true
		name = l["case"].(string)
		if l["case"] == "attention" {
			attention = append(attention, fmt.Sprint(l["mode"]))
		}
		switch name {
		case "device":
		case "ways":
			if l["op"] != "launch" {
				require.Contains(t, fmt.Sprint(l), "product by kernels, as there is no library:", "%v", l)
			}
		case "correct":
			most := 1e-5
			if l["mode"] == "bf16" || l["mode"] == "fp8" { // which is the same without a library
				most = 2e-2
				require.Greater(t, l["off"].(float64), 1e-6, "it is not float32: %v", l)
			}
			require.LessOrEqual(t, l["off"].(float64), most, "%v", l)
			for parameter, by := range l["gradients"].(map[string]any) {
				require.Positive(t, by, "%s: %v", parameter, l)
				require.LessOrEqual(t, by.(float64), l["gradients_off"], "%s: %v", parameter, l)
			}
		default:
			require.Positive(t, l["ms"], "%v", l)
		}
		require.Equal(t, "weft unknown", l["peer"])
	}
	require.Equal(t, map[string]int{
		"device": 1, "correct": 16, "copy": 1, "product-f32": 1, "product-tf32": 1, "product-bf16": 1, "product-fp8": 1, "mlp-small": 1, "mlp-large": 1,
		"mlp-large-fp8": 1, "gpt2-small": 1, "bound": 7, "attention": 5, "launch": 2, "split": 4, "ways": 27,
	}, seen)
	require.Equal(t, []string{"wgmma", "wgmma"}, attention[3:], "what programs have to ask for is last: where it faults, the others are measured")
	for name, lines := range peerLines(t) {
		for _, l := range lines {
			require.True(t, printed[l], "PyTorch's case %s prints %q, which Weft's does not", name, l)
		}
	}
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
		"device": report.OK, "driver": report.OK, "kernels": report.OK, "generated kernels": report.Failed, "gradients": report.LeftOut,
		"bench copy 1": report.OK, "bench copy 2": report.OK, "bench launch 1": report.OK, "bench launch 2": report.OK,
	}, verdicts)
	require.False(t, r.Green)
	require.Equal(t, report.Complete, r.State)
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
}

func TestContactRunsAPartFromTheBundle(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	dir := contacted(t, selfEnv+"=1 exec "+self+` "$@" -dir "$(dirname "$0")"`)
	out := filepath.Join(t.TempDir(), "new", "out")
	code, said := contact(t, dir, "OUT=", out, "second", "-device", "interpreter", "-only", "machine,bench launch")
	require.Zero(t, code, said)
	r := resultIn(t, out)
	require.Equal(t, report.Complete, r.State)
	require.Len(t, r.Steps, 3)
	left, err := os.ReadDir(out)
	require.NoError(t, err)
	require.Len(t, left, 2)
}
