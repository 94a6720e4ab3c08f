package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"image/png"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/elastic/agent"
	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/examples/internal/table"
	"github.com/weft-project/weft/internal/secret/secrettest"
	"github.com/weft-project/weft/store"
)

// The test binary is also the program: a worker is this binary with RANK set.
func TestMain(m *testing.M) {
	if os.Getenv("RANK") == "" {
		os.Exit(m.Run())
	}
	// Each tells its pid once: one that was started again does not.
	if fifo := os.Getenv("TEST_PID_TO"); fifo != "" && os.Getenv("RANK") == cmp.Or(os.Getenv("TEST_PID_OF"), "1") && cmp.Or(os.Getenv(elastic.RestartsVariable), "0") == "0" {
		if err := os.WriteFile(fifo, fmt.Append(nil, os.Getpid()), 0o600); err != nil {
			panic(err)
		}
	}
	var out io.Writer = os.Stdout
	if file := os.Getenv("TEST_KILLS"); file != "" && os.Getenv("RANK") == "0" && cmp.Or(os.Getenv(elastic.RestartsVariable), "0") == "0" {
		out = &killer{out, file}
	}
	os.Exit(run(context.Background(), os.Args[1:], out, os.Stderr))
}

// killer passes on what is written, and before the second epoch's line kills the process whose pid
// the file has.
type killer struct {
	io.Writer
	file string // empty: it has
}

func (k *killer) Write(p []byte) (int, error) {
	if k.file != "" && bytes.Contains(p, []byte("epoch  2/")) {
		pid, err := os.ReadFile(k.file)
		if err != nil {
			return 0, err
		}
		k.file = ""
		victim, err := strconv.Atoi(string(pid))
		if err == nil {
			err = syscall.Kill(victim, syscall.SIGKILL)
		}
		if err != nil {
			return 0, err
		}
	}
	return k.Writer.Write(p)
}

func runJSON(t *testing.T, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	require.Equal(t, 0, run(t.Context(), append(args, "--json", "--plot", ""), &out, &errs), "%s", &errs)
	var r result
	require.NoError(t, json.Unmarshal(out.Bytes(), &r), "%s", &out)
	return r
}

func requireRelative(t *testing.T, want, got []float64, tolerance float64, what string) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		require.InEpsilon(t, want[i], got[i], tolerance, "%s: step %d", what, i)
	}
}

func TestTheFirstFiftyLossesAreThoseOfOneProcessAndOfPlainGo(t *testing.T) {
	// 16 rows per step, so that the 50 steps lie in one epoch.
	args := []string{"--steps", "50", "--batch", "16"}
	split := runJSON(t, append(args, "--workers", "2")...)
	whole := runJSON(t, append(args, "--workers", "1")...)
	require.Equal(t, 2, split.Workers)
	require.Len(t, split.Losses, 50)
	requireRelative(t, whole.Losses, split.Losses, 1e-5, "split against one process")

	s, err := parse(append(args, "--workers", "1"), io.Discard)
	require.NoError(t, err)
	d, err := table.Load("", s.seed)
	require.NoError(t, err)
	want := newReference(t, s.sizes(d)).losses(d, s)
	requireRelative(t, want, whole.Losses, 1e-5, "one process against plain Go")
	requireRelative(t, want, split.Losses, 1e-5, "split against plain Go")
}

func TestTheSplitModelReachesItsAccuracyAndDrawsItsLoss(t *testing.T) {
	file := filepath.Join(t.TempDir(), "loss.png")
	var out, errs bytes.Buffer
	require.Equal(t, 0, run(t.Context(), []string{"--plot", file}, &out, &errs), "%s", &errs)
	require.Contains(t, out.String(), "split over two workers")
	require.Contains(t, out.String(), "epoch 30/30")
	var accuracy float64
	_, err := fmt.Sscanf(out.String()[strings.Index(out.String(), "test accuracy"):], "test accuracy %f", &accuracy)
	require.NoError(t, err)
	require.GreaterOrEqual(t, accuracy, 0.96)
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close() //nolint:errcheck // it was only read
	img, err := png.Decode(f)
	require.NoError(t, err)
	require.Greater(t, img.Bounds().Dx(), 300)
}

func TestAWrongCommandLineIsRefusedWithAllThatIsWrong(t *testing.T) {
	var out, errs bytes.Buffer
	require.Equal(t, 2, run(t.Context(), []string{"--workers", "3", "--epochs", "0", "--lr", "-1", "--plot", "no/such/folder.png", "extra"}, &out, &errs))
	for _, part := range []string{"3 workers", "--epochs 0", "--lr -1", "no/such", `"extra"`} {
		require.Contains(t, errs.String(), part)
	}
}

// seen is a writer that tells when a text has passed.
type seen struct {
	mu   sync.Mutex
	all  strings.Builder
	text string
	then chan struct{}
}

func (s *seen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all.Write(p)
	if s.text != "" && strings.Contains(s.all.String(), s.text) {
		s.text = ""
		close(s.then)
	}
	return len(p), nil
}

func (s *seen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.String()
}

// killWorker waits until training is under way and kills the worker whose pid comes through the
// pipe. ended tells of who ends before.
func killWorker(t *testing.T, fifo string, out *seen, ended <-chan error) {
	var pid int
	raw, err := os.ReadFile(fifo)
	require.NoError(t, err)
	_, err = fmt.Sscan(string(raw), &pid)
	require.NoError(t, err)
	select {
	case <-out.then:
	case err := <-ended:
		require.Fail(t, "training does not begin", "%v\n%s", err, out)
	}
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
}

func newFIFO(t *testing.T) string {
	fifo := filepath.Join(t.TempDir(), "pid")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	return fifo
}

func TestAKilledWorkerEndsTheJobWithItsName(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	fifo, out := newFIFO(t), &seen{text: "epoch  2/", then: make(chan struct{})}
	spec := agent.Spec{
		Program: self, Args: []string{"--epochs", "1000000", "--plot", ""}, NprocPerNode: 2, Stdout: out, Stderr: out,
		Env: append(os.Environ(), "TEST_PID_TO="+fifo),
	}
	ended := make(chan error, 1)
	go func() { _, err := agent.Run(t.Context(), spec); ended <- err }()
	killWorker(t, fifo, out, ended)
	killed := time.Now()
	err = <-ended
	require.Less(t, time.Since(killed), 10*time.Second)
	var failed *agent.WorkerError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, 128+9, failed.Code)
	require.Contains(t, failed.Report(), "worker1")
}

func TestWithRestartsTrainingBeginsAgainWhicheverWorkerIsKilledAndWhateverTheyCost(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	for _, rank := range []string{"0", "1"} {
		for _, policy := range []rdzv.Policy{rdzv.ReplaceWorker, rdzv.RestartGroup} {
			file, out := filepath.Join(t.TempDir(), "pid"), new(seen)
			spec := agent.Spec{
				Program: self, Args: []string{"--epochs", "4", "--plot", ""}, NprocPerNode: 2, Stdout: out, Stderr: out, MaxRestarts: 2, Policy: policy,
				Env: append(os.Environ(), "TEST_PID_TO="+file, "TEST_PID_OF="+rank, "TEST_KILLS="+file),
			}
			_, err := agent.Run(t.Context(), spec)
			require.NoError(t, err, "worker %s, policy %v: %s", rank, policy, out)
			require.Equal(t, 2, strings.Count(out.String(), "rows to train on"), "%s", out)
			require.Equal(t, 1, strings.Count(out.String(), "test accuracy"), "%s", out)
		}
	}
}

func TestWithoutALauncherTheSurvivorItselfNamesTheLostWorkerWithinTenSeconds(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	server, err := store.Serve(store.ServerConfig{Addr: "127.0.0.1:0"})
	require.NoError(t, err)
	defer server.Close() //nolint:errcheck // the end of the test
	host, port, err := net.SplitHostPort(server.Addr())
	require.NoError(t, err)
	fifo, out := newFIFO(t), &seen{text: "epoch  2/", then: make(chan struct{})}
	start := func(rank int) *exec.Cmd {
		cmd := exec.Command(self, "--epochs", "1000000", "--plot", "")
		cmd.Stdout, cmd.Stderr = out, out
		cmd.Env = append(os.Environ(), "TEST_PID_TO="+fifo, "TORCHELASTIC_USE_AGENT_STORE=True", "MASTER_ADDR="+host,
			"MASTER_PORT="+port, "WORLD_SIZE=2", fmt.Sprintf("RANK=%d", rank), "WEFT_TOKEN="+secrettest.Token("job"))
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill() }) // where the test failed; otherwise it has ended
		return cmd
	}
	survivor, victim := start(0), start(1)
	ended := make(chan error, 1)
	go func() { ended <- survivor.Wait() }()
	killWorker(t, fifo, out, ended)
	killed := time.Now()
	require.Error(t, <-ended)
	require.Less(t, time.Since(killed), 10*time.Second)
	require.Equal(t, 1, survivor.ProcessState.ExitCode())
	require.Contains(t, out.String(), "peer lost: worker1")
	require.Error(t, victim.Wait())
}
