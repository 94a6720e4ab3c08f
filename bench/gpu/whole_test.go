//go:build gpu && linux && (amd64 || arm64) && !race

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/bench/gpu/internal/report"
	"github.com/weft-project/weft/internal/fakecuda"
)

// whole is what the check wrote, over a driver with something planted.
type whole struct {
	Steps   []wholeStep `json:"steps"`
	Seconds float64     `json:"seconds"`
	Green   bool        `json:"green"`
	page    string
	seen    fakecuda.Seen
}

type wholeStep struct {
	Name, Verdict, Why, Output string
	Lines                      []any
}

// step is what became of a step, and all that is told of it.
func (w whole) step(t *testing.T, name string) (verdict, text string) {
	t.Helper()
	for _, s := range w.Steps {
		if s.Name == name {
			lines, err := json.Marshal(s.Lines)
			require.NoError(t, err)
			return s.Verdict, s.Why + "\n" + s.Output + "\n" + string(lines)
		}
	}
	require.Failf(t, "no such step", "%s: %v", name, w.Steps)
	return "", ""
}

// checkOver runs the whole check with two benchmarks, over the driver at path.
func checkOver(t *testing.T, path, plan string, args ...string) (w whole) {
	t.Helper()
	out, seen := t.TempDir(), filepath.Join(t.TempDir(), "seen")
	cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{"-out", out, "-dir", t.TempDir(), "-rounds", "1", "-only", "bench copy 1,bench launch 1"}, args...)...)
	cmd.Env = append(overFake(path, plan, seen), interpretEnv+"=") // what kernels give is not looked at
	said, _ := cmd.CombinedOutput()
	raw, err := os.ReadFile(filepath.Join(out, "result.json"))
	require.NoError(t, err, "%s", said)
	require.NoError(t, json.Unmarshal(raw, &w))
	page, err := os.ReadFile(filepath.Join(out, "result.md"))
	require.NoError(t, err)
	w.page = string(page)
	if plan != "" && path != nowhere {
		w.seen, err = fakecuda.Read(seen)
		require.NoError(t, err)
	}
	return w
}

const nowhere = "/nonexistent/libcuda.so.1"

func TestTheCheckTellsWhateverTheDriverDoesThroughTheDriver(t *testing.T) {
	path, err := fakecuda.Build(t.TempDir())
	require.NoError(t, err)
	for name, test := range map[string]func(*testing.T, string){
		"one that hangs at its first call costs no more than the time":   hangingFirst,
		"one that fails in a call costs the steps that make it":          failingOnce,
		"why there is no GPU to check is in the results, and what to do": noGPUAtAll,
	} {
		t.Run(name, func(t *testing.T) { test(t, path) })
	}
}

func hangingFirst(t *testing.T, path string) {
	for budget := 2 * time.Second; ; budget *= 2 {
		w := checkOver(t, path, "cuInit:hang", "-budget", budget.String())
		if w.seen.Hits == 0 { // the machine is slow: it did not come so far
			continue
		}
		verdict, text := w.step(t, "device")
		require.NotEqual(t, report.OK, verdict)
		require.Contains(t, text, "opening the driver")
		require.Contains(t, text, "_Cfunc_weft_open", "where it is")
		require.Contains(t, w.page, "weft_open")
		require.LessOrEqual(t, w.Seconds, (budget + 10*time.Second).Seconds())
		verdict, text = w.step(t, "bench launch 1")
		require.Equal(t, report.LeftOut, verdict)
		require.Contains(t, text, "no time is left")
		return
	}
}

func failingOnce(t *testing.T, path string) {
	for plan, failing := range map[string]struct{ step, says string }{
		"cuMemGetInfo_v2:crash":           {"device", "_Cfunc_cuMemGetInfo"},
		"cuMemGetInfo_v2:exit":            {"device", "exit status 0"},
		"cuMemGetInfo_v2:lost719":         {"device", "cuMemGetInfo: CUDA error 719: device is lost"},
		"cuStreamBeginCapture_v2:abort":   {"bench launch 1", "_Cfunc_weft_capture"},
		"cuGraphLaunch@2:lost700":         {"bench launch 1", "cuGraphLaunch: CUDA error 700: device is lost"},
		"cuMemcpyDtoDAsync_v2@2:memory":   {"bench copy 1", "cuMemcpyDtoDAsync: CUDA error 2: out of device memory"},
		"cuGraphInstantiateWithFlags:801": {}, // there is another way
	} {
		w := checkOver(t, path, plan)
		require.Positive(t, w.seen.Hits, plan)
		for _, name := range []string{"device", "bench copy 1", "bench launch 1"} {
			verdict, text := w.step(t, name)
			if name != failing.step {
				require.Equal(t, report.OK, verdict, "%s: %s: %s", plan, name, text)
				continue
			}
			require.Equal(t, report.Failed, verdict, plan)
			require.Contains(t, text, failing.says, plan)
		}
		require.Equal(t, failing.step == "", w.Green, plan)
	}
}

func noGPUAtAll(t *testing.T, path string) {
	for plan, says := range map[string]string{
		"":                              "no CUDA driver: " + nowhere,
		"cuInit:100":                    "cuInit: CUDA error 100: no such device: no CUDA-capable device: nvidia-smi -L lists them",
		"cuInit:35":                     "cuInit: CUDA error 35: the CUDA driver is too old: install a newer NVIDIA driver",
		"cuInit:803":                    "cuInit: CUDA error 803: the CUDA driver is too old: libcuda.so.1 and the kernel's module are of different versions: reboot",
		"cuDevicePrimaryCtxRetain:46":   "cuDevicePrimaryCtxRetain: CUDA error 46: no such device: another process has the GPU for itself (nvidia-smi -c 0",
		"cuDevicePrimaryCtxRetain:806":  "cuDevicePrimaryCtxRetain: CUDA error 806: no CUDA driver: NVIDIA's MPS does not serve this process",
		"cuDeviceGetCount:lost999":      "cuDeviceGetCount: CUDA error 999: device is lost: the driver does not say why",
		"cuDevicePrimaryCtxRetain:9999": "cuDevicePrimaryCtxRetain: CUDA error 9999: as the fake driver says",
	} {
		at := path
		if plan == "" {
			at = nowhere
		}
		w := checkOver(t, at, plan)
		verdict, text := w.step(t, "device")
		require.Equal(t, report.Failed, verdict, plan)
		require.Contains(t, text, says)
		require.Contains(t, w.page, strings.SplitN(says, ":", 2)[0])
		verdict, _ = w.step(t, "bench launch 1")
		require.NotEqual(t, report.OK, verdict, plan)
		require.False(t, w.Green)
	}
}
