package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic/agent"
	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/internal/leak"
)

// The test binary is also the program: an agent or a worker is this binary with what that is told
// by.
func TestMain(m *testing.M) {
	if os.Getenv("RANK") == "" && os.Getenv(agentVariable) == "" {
		os.Exit(m.Run())
	}
	main()
}

// played is what came of a training on three agents while things happened.
func played(t *testing.T, policy string, events []event, args ...string) (result, string) {
	t.Helper()
	leak.Check(t)
	t.Setenv("GORACE", "atexit_sleep_ms=0") // the race detector makes every exit take a second otherwise
	file := filepath.Join(t.TempDir(), "result.json")
	var out proctest.Output
	err := perform(t.Context(), quietly(file, args), policy, events, &out)
	require.NoError(t, err, "%s", &out)
	requireNobody(t, out.String())
	return readResult(t, file), out.String()
}

// quietly are arguments for a test.
func quietly(result string, args []string) []string {
	return append([]string{"--plot", "", "--lines", "5", "--silence", "3s", "--result", result}, args...)
}

func readResult(t *testing.T, file string) (r result) {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &r))
	return r
}

// requireNobody looks for processes that are left.
func requireNobody(t *testing.T, transcript string) {
	t.Helper()
	workers := regexp.MustCompile(`is process (\d+)`).FindAllStringSubmatch(transcript, -1)
	require.NotEmpty(t, workers)
	for _, m := range workers {
		pid, err := strconv.Atoi(m[1])
		require.NoError(t, err)
		// Who was killed with its agent is another's child, and may be about to be waited for.
		require.Eventually(t, func() bool { return syscall.Kill(pid, 0) != nil }, 10*time.Second, time.Millisecond, "process %d is left", pid)
	}
}

// undisturbed is what comes of it where nothing happens, on one worker.
func undisturbed(t *testing.T, args ...string) result {
	t.Helper()
	t.Setenv("GORACE", "atexit_sleep_ms=0")
	dir, self := t.TempDir(), must(os.Executable())(t)
	var out proctest.Output
	args = append(args, "--plot", "", "--checkpoints", filepath.Join(dir, "checkpoints"), "--result", filepath.Join(dir, "result.json"))
	_, err := agent.Run(t.Context(), agent.Spec{Program: self, Args: args, NprocPerNode: 1, Stdout: &out, Stderr: &out})
	require.NoError(t, err, "%s", &out)
	return readResult(t, filepath.Join(dir, "result.json"))
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		require.NoError(t, err)
		return v
	}
}

// requireSame says that nobody can tell from the losses that something has happened.
func requireSame(t *testing.T, want, got result) {
	t.Helper()
	require.Len(t, got.Losses, len(want.Losses))
	furthest := 0.0
	for i, l := range want.Losses {
		furthest = max(furthest, l-got.Losses[i], got.Losses[i]-l)
		require.InDelta(t, l, got.Losses[i], 1e-3, "step %d", i+1)
	}
	require.InDelta(t, want.Accuracy, got.Accuracy, 0.01)
	t.Logf("accuracy %.4f, undisturbed %.4f; no loss is further than %.2g from the undisturbed one's", got.Accuracy, want.Accuracy, furthest)
}

var stood = regexp.MustCompile(`.*stood still for.*`)

// logStops prints how long training stood still each time. (They depend on the machine, so nothing
// is required of them.)
func logStops(t *testing.T, transcript string) {
	t.Helper()
	for _, line := range stood.FindAllString(transcript, -1) {
		t.Log(line)
	}
}

func TestTrainingGoesOnWhenAWorkerIsKilledTheFirstAgentIsLostAndAnotherComes(t *testing.T) {
	args := []string{"--epochs", "6"}
	got, out := played(t, "worker", []event{{0.2, killWorker}, {0.3, killFirstAgent}, {0.4, addAgent}}, append(args, "--pace", "20ms")...)
	logStops(t, out)
	for _, says := range []string{"a worker was replaced: 3 workers go on from step ", "3 nodes became 2, 3 workers became 2: 2 workers go on from step ",
		"2 nodes became 3, 2 workers became 3: 3 workers go on from step "} {
		require.Contains(t, out, says)
	}
	require.Equal(t, 1, strings.Count(out, "starting it again"))
	require.GreaterOrEqual(t, strings.Count(out, "] lost: "), 4, "two workers are told of each of two losses")
	var worlds []int
	for _, m := range got.Marks {
		worlds = append(worlds, m.World)
	}
	require.Subset(t, worlds, []int{2, 3})
	requireSame(t, undisturbed(t, args...), got)
}

func TestTrainingGoesOnFromTheFolderWhereItWasStopped(t *testing.T) {
	dir, self := t.TempDir(), must(os.Executable())(t)
	t.Setenv("GORACE", "atexit_sleep_ms=0")
	args := []string{"--epochs", "2", "--plot", "", "--checkpoints", filepath.Join(dir, "checkpoints"), "--result", filepath.Join(dir, "result.json"), "--lines", "10"}
	c, cancel := context.WithCancel(t.Context())
	first := stopAt{"step 40/", cancel, &proctest.Output{}}
	_, err := agent.Run(c, agent.Spec{Program: self, Args: append(args, "--pace", "5ms"), NprocPerNode: 2, Stdout: first, Stderr: first})
	require.ErrorIs(t, err, context.Canceled)
	var out proctest.Output
	for range 2 { // the second time there is nothing left to do
		_, err = agent.Run(t.Context(), agent.Spec{Program: self, Args: args, NprocPerNode: 3, Stdout: &out, Stderr: &out})
		require.NoError(t, err, "%s", &out)
	}
	require.Regexp(t, `the job begins: 3 workers go on from the checkpoint of step (40|20)\n`, out.String())
	require.Contains(t, out.String(), "the job begins: nothing is left to train: 2 epochs are made; give --epochs more\n")
	requireSame(t, undisturbed(t, "--epochs", "2"), readResult(t, filepath.Join(dir, "result.json")))
}

// stopAt calls stop when a text has come by.
type stopAt struct {
	text string
	stop func()
	*proctest.Output
}

func (s stopAt) Write(p []byte) (int, error) {
	n, err := s.Output.Write(p)
	if strings.Contains(s.String(), s.text) {
		s.stop()
	}
	return n, err
}

func TestAWrongCommandLineIsToldWhole(t *testing.T) {
	var errs bytes.Buffer
	args := strings.Fields("--every 0 --lr -1 --pace -1s --checkpoints= --restart-policy both --silence 0s --plot loss.txt more")
	require.Equal(t, 2, run(t.Context(), args, io.Discard, &errs))
	for _, part := range []string{"--every", "--lr", "--pace", "--checkpoints", "--restart-policy", "--silence", "--plot", `"more"`} {
		require.Contains(t, errs.String(), part)
	}
	require.Equal(t, 0, run(t.Context(), []string{"--help"}, io.Discard, io.Discard))
}

func TestAShortDemonstrationEndsWithAnAccuracyAndUsesTheFolderThatIsGiven(t *testing.T) {
	t.Setenv("GORACE", "atexit_sleep_ms=0")
	folder := filepath.Join(t.TempDir(), "checkpoints")
	for _, says := range []string{"is started", "training has ended before the rest of the demonstration"} { // the second time there is nothing to do
		var out, errs proctest.Output
		args := []string{"--epochs", "1", "--plot", "", "--checkpoints", folder, "--silence", "3s"}
		require.Zero(t, run(t.Context(), args, &out, &errs), "%s\n%s", &out, &errs)
		require.Regexp(t, `test accuracy 0\.\d{4}`, out.String())
		require.Contains(t, out.String(), says)
	}
}

func TestADemonstrationThatFailsSaysSoAndLeavesNobody(t *testing.T) {
	leak.Check(t)
	var out, errs proctest.Output
	wrong := event{0, func(*crew, string) (string, error) { return "nothing", fmt.Errorf("cannot be done") }}
	err := perform(t.Context(), []string{"--plot", "", "--lines", "1"}, "worker", []event{wrong}, io.MultiWriter(&out, &errs))
	require.ErrorContains(t, err, "cannot be done")
	requireNobody(t, out.String())
}
