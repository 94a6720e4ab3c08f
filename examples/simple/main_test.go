package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/secret/secrettest"
)

// TestMain makes the test binary the example: with WEFT_TEST_SIMPLE set it runs main instead of the
// tests.
func TestMain(m *testing.M) {
	if os.Getenv("WEFT_TEST_SIMPLE") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// simple runs the example with an environment that is this one's, without a job's variables, and
// extra.
func simple(t *testing.T, args []string, extra ...string) (stdout, stderr string, err error) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains([]string{"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "WEFT_TOKEN", "TORCHELASTIC_USE_AGENT_STORE"}, name)
	})
	cmd.Env = append(append(cmd.Env, "WEFT_TEST_SIMPLE=1", "GORACE=atexit_sleep_ms=0"), extra...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

func TestAStepMovesEachParameterByExactlyMinusLRTimesItsGradientAcrossTwoProcesses(t *testing.T) {
	stdout, stderr, err := simple(t, []string{"--json"})
	require.NoError(t, err, stderr)
	byWorker := map[string][]move{}
	for line := range strings.Lines(stdout) {
		var m move
		require.NoError(t, json.Unmarshal([]byte(line), &m), line)
		byWorker[m.Worker] = append(byWorker[m.Worker], m)
	}
	require.Len(t, byWorker, 2)
	other := map[string]string{"worker0": "worker1", "worker1": "worker0"}
	for worker, moves := range byWorker {
		require.Len(t, moves, 2, worker)
		for _, m := range moves {
			require.Equal(t, other[worker], m.Owner)
			require.Len(t, m.Before, 9)
			require.Len(t, m.Gradient, 9)
			require.Len(t, m.After, 9)
			for i := range m.Before {
				sum := moves[0].Before[i] + moves[1].Before[i]
				require.Equal(t, 2*sum, m.Gradient[i], "the gradient of Σ(A+B)² by %s, element %d", m.Param, i)
				moved := float32(0.05) * m.Gradient[i]
				require.Equal(t, m.Before[i]-moved, m.After[i], "%s of %s, element %d", m.Param, worker, i)
				require.NotEqual(t, m.Before[i], m.After[i])
			}
		}
	}
	require.NotEqual(t, byWorker["worker0"], byWorker["worker1"], "two processes draw different parameters")
}

func TestTheOutputForPeopleSaysItOfEachParameterOfEachRank(t *testing.T) {
	stdout, stderr, err := simple(t, nil)
	require.NoError(t, err, stderr)
	for _, line := range []string{
		"[0] worker0: A on worker1 moved by exactly -0.05 × its gradient", "[0] worker0: B on worker1 moved by exactly -0.05 × its gradient",
		"[1] worker1: A on worker0 moved by exactly -0.05 × its gradient", "[1] worker1: B on worker0 moved by exactly -0.05 × its gradient",
	} {
		require.Equal(t, 1, strings.Count(stdout, line+"\n"), stdout)
	}
}

func TestTheGraphOfTheFirstRanksPassIsWrittenWhereItIsAskedFor(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pass.svg")
	_, stderr, err := simple(t, []string{"--json", "--graph", file})
	require.NoError(t, err, stderr)
	svg, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, text := range []string{"worker0", "worker1", "Add", "Mul", "params 1–2", "send → worker0"} {
		require.Contains(t, string(svg), text)
	}
	_, stderr, err = simple(t, []string{"--graph", "pass.png"})
	require.Error(t, err)
	require.Equal(t, "simple: --graph pass.png: the name must end in .svg or .dot\nsee simple --help\n", stderr) // no worker began
}

func TestAnotherNumberOfWorkersIsRefused(t *testing.T) {
	_, stderr, err := simple(t, nil, "RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=0", "WEFT_TOKEN="+secrettest.Token("job"))
	require.Error(t, err)
	require.Contains(t, stderr, "expected two workers, not 1")
}

func TestTheCheckNoticesAMoveThatIsOffByTheLastBit(t *testing.T) {
	m := move{Worker: "worker0", Owner: "worker1", Param: "A", Before: []float32{1, 2}, Gradient: []float32{3, 4}}
	for i, g := range m.Gradient {
		m.After = append(m.After, m.Before[i]-float32(lr*g))
	}
	require.NoError(t, m.verify())
	m.After[1] += 1.0 / (1 << 22)
	require.ErrorContains(t, m.verify(), "A on worker1: element 1")
}
