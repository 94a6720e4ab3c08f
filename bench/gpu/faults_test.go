//go:build gpu && linux && (amd64 || arm64) && !race

package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/bench/gpu/internal/measure"
	"github.com/weft-project/weft/internal/fakecuda"
	"github.com/weft-project/weft/internal/soak"
)

// interpretEnv has a process that is this program run kernels by the interpreter, on the fake
// driver that LIBCUDA_PATH names.
const interpretEnv = "WEFT_TEST_INTERPRET"

func init() {
	if os.Getenv(interpretEnv) == "" {
		return
	}
	lib, err := fakecuda.Opened()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	lib.Use(fakecuda.Interpreter())
}

// overFake are the variables of a process that is this program over the fake driver at path, with
// something planted.
func overFake(path, plan, seen string) []string {
	return append(os.Environ(), "LIBCUDA_PATH="+path, "WEFT_CUBLASLT="+path, interpretEnv+"=1", selfEnv+"=1", measure.TinyEnv+"=1", fakecuda.PlantEnv+"="+plan, fakecuda.SeenEnv+"="+seen)
}

// driverFault is a step of the check over a driver that does something else in one of its calls:
// each time, or the at-th.
type driverFault struct {
	step       []string
	call, kind string
	at         int
}

func (p driverFault) plan() string {
	if p.call == "" {
		return ""
	}
	return fmt.Sprintf("%s@%d:%s", p.call, p.at, p.kind)
}

func (p driverFault) String() string { return fmt.Sprintf("%s in %v", p.plan(), p.step) }

// became is what became of a step.
type became struct {
	code int
	out  string // all that it printed
	seen fakecuda.Seen
	took time.Duration
}

// run runs a step. One that hangs is asked where it is, as the check asks a step that is late.
func (p driverFault) run(t *testing.T, path string) (b became) {
	t.Helper()
	seen := filepath.Join(t.TempDir(), "seen")
	cmd := exec.CommandContext(t.Context(), os.Args[0], p.step...)
	if cmd.Env = overFake(path, p.plan(), seen); p.step[0] == "device" {
		cmd.Env = append(cmd.Env, interpretEnv+"=") // it loads all modules, and runs nothing
	}
	began := time.Now()
	var err error
	b.out, err = fakecuda.Run(cmd)
	require.NoError(t, err)
	b.took, b.code = time.Since(began), cmd.ProcessState.ExitCode()
	b.seen, err = fakecuda.Read(seen)
	require.NoError(t, err)
	return b
}

// faultKinds are what drivers do: those that a process survives last.
var faultKinds = []string{"hang", "crash", "abort", "exit", "slow", "memory", "lost214", "lost700", "lost719", "lost999", "46", "801"}

// faultCases are all calls that the check's steps make, each in the step that is quickest, with all
// kinds, at the first, a later and the last time. Whole is how many lines each step prints where
// nothing is planted.
func faultCases(t *testing.T, path string) (all []driverFault, whole map[string]int) {
	bench := func(name string) []string { return []string{"bench", "-rounds", "1", "-only", name} }
	whole = map[string]int{}
	known := map[string]bool{}
	for _, step := range [][]string{bench("copy"), bench("product"), bench("launch"), bench("small"), {"device"}} {
		b := driverFault{step: step}.run(t, path)
		require.Zero(t, b.code, b.out)
		whole[fmt.Sprint(step)] = strings.Count(b.out, "\n")
		for _, call := range slices.Sorted(maps.Keys(b.seen.Calls)) {
			n := b.seen.Calls[call]
			if known[call] {
				continue
			}
			known[call] = true
			for _, kind := range faultKinds {
				for _, at := range slices.Compact([]int{1, 1 + n/2, n}) {
					all = append(all, driverFault{step, call, kind, at})
				}
			}
		}
	}
	return all, whole
}

// survived are calls without which the steps go on: nothing needs them, or there is another way.
// Without the driver's version all libraries are tried.
var survived = []string{"cuDriverGetVersion", "cuFuncGetParamInfo", "cuGetErrorString", "cublasLtGetVersion", "cuStreamBeginCapture_v2", "cuGraphInstantiateWithFlags"}

// told checks that a step ended as it must, and says how in a word.
func (p driverFault) told(t *testing.T, b became, whole int) string {
	t.Helper()
	say := fmt.Sprintf("%v: exit code %d\n%s", p, b.code, b.out)
	if b.seen.Hits == 0 { // the last time of last time
		assert.Zero(t, b.code, say)
		return "not reached"
	}
	switch p.kind {
	case "hang", "crash", "abort":
		assert.Equal(t, 2, b.code, say)
		assert.Contains(t, b.out, map[string]string{"hang": "SIGQUIT", "crash": "SIGSEGV", "abort": "SIGABRT"}[p.kind], say)
		assert.Contains(t, b.out, "_Cfunc_", "where it was\n"+say)
		return "signal and stack"
	case "exit":
		assert.Zero(t, b.code, say)
		if strings.Count(b.out, "\n") >= whole { // all was said: it was closing
			return "went well"
		}
		return "lines are missing"
	case "slow":
		assert.Zero(t, b.code, say)
		return "went well"
	}
	lost := strings.HasPrefix(p.kind, "lost")
	assert.NotContains(t, b.out, "panic: ", say)
	assert.NotContains(t, b.out, "SIGSEGV", say)
	if b.code == 0 {
		told := strings.HasPrefix(p.call, "cublas") && strings.Contains(b.out, fakecuda.Plain(p.call)+": ") // kernels multiply, and it says why
		assert.True(t, fakecuda.GivesBack(p.call) || slices.Contains(survived, p.call) || lost || told, say)
		assert.GreaterOrEqual(t, strings.Count(b.out, "\n"), whole, say)
		return "went well"
	}
	assert.Equal(t, 1, b.code, say)
	assert.True(t, strings.Contains(b.out, fakecuda.Plain(p.call)+": ") || lost && strings.Contains(b.out, "device is lost") || strings.Contains(b.out, "alloc: out of device memory"), say)
	assert.Less(t, len(b.out), 4000, "what went wrong is to be found in what is said\n"+say)
	return "error by name"
}

func TestADriverThatFailsInAnyCallIsToldByTheStepThroughTheDriver(t *testing.T) {
	path, err := fakecuda.Build(t.TempDir())
	require.NoError(t, err)
	all, whole := faultCases(t, path)
	rand.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	count, worst := map[string]int{}, map[string]time.Duration{}
	for _, p := range all[:min(len(all), soak.Cases(30))] {
		b := p.run(t, path)
		row := fmt.Sprintf("%-8s %s", p.kind, p.told(t, b, whole[fmt.Sprint(p.step)]))
		count[row]++
		worst[row] = max(worst[row], b.took)
	}
	t.Logf("%d cases are all", len(all))
	for _, row := range slices.Sorted(maps.Keys(count)) {
		t.Logf("%-30s %5d  at most %v", row, count[row], worst[row].Round(time.Millisecond))
	}
}
