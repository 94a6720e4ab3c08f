package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic/agent"
	"github.com/weft-project/weft/examples/internal/opticks"
)

// The test binary is also the program: a worker is this binary with RANK set.
func TestMain(m *testing.M) {
	if os.Getenv("RANK") == "" {
		os.Exit(m.Run())
	}
	if fifo := os.Getenv("TEST_PID_TO"); fifo != "" && os.Getenv("RANK") == "2" {
		if err := os.WriteFile(fifo, fmt.Append(nil, os.Getpid()), 0); err != nil {
			panic(err)
		}
	}
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// small is a model and a text that take no time.
func small(t *testing.T, args ...string) []string {
	file := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(file, []byte(opticks.Text()[20000:30000]), 0o600))
	return append(args, "--data", file, "--blocks", "1,1,0", "--width", "16", "--heads", "2", "--context", "8", "--vocab", "100", "--micro", "4", "--rows", "1", "--lr", "0.01")
}

func runJSON(t *testing.T, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	require.Equal(t, 0, run(t.Context(), small(t, append(args, "--json", "--plot", "")...), &out, &errs), "%s", &errs)
	var r result
	require.NoError(t, json.Unmarshal(out.Bytes(), &r), "%s", &out)
	return r
}

func TestThreeProcessesLoseAsOneDoesAndWriteTheSame(t *testing.T) {
	args := []string{"--steps", "22", "--sample", "10", "--temperature", "0", "--measure", "0"}
	split, whole := runJSON(t, args...), runJSON(t, append(args, "--workers", "1")...)
	require.Equal(t, 3, split.Workers)
	require.Len(t, split.Losses, 22)
	for i := range whole.Losses {
		require.InEpsilon(t, whole.Losses[i], split.Losses[i], 1e-5, "step %d", i+1)
	}
	require.InEpsilon(t, whole.TestLoss, split.TestLoss, 1e-5)
	require.Less(t, split.TestLoss, split.Losses[0])
	require.True(t, strings.HasPrefix(split.Sample, "The Rays of Light"))
	require.Equal(t, whole.Sample, split.Sample)
	require.Positive(t, split.TokensPerSecond)
}

func TestTheOutputForPeopleHasTheBubbleTheSampleAndThePicture(t *testing.T) {
	file := filepath.Join(t.TempDir(), "loss.png")
	var out, errs bytes.Buffer
	args := small(t, "--steps", "20", "--sample", "5", "--measure", "2", "--plot", file, "--prompt", "Opticks")
	require.Equal(t, 0, run(t.Context(), args, &out, &errs), "%s", &errs)
	for _, part := range []string{"3 stages of [1 1 0] blocks", "step   20/20  loss", "tokens/s", "stage 0, embedding and 1 block: busy", "stage 2, head: busy",
		"slowest stage alone", "% of that stage's throughput, ", "\nOpticks", "loss curve in " + file} {
		require.Contains(t, out.String(), part)
	}
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.NotZero(t, info.Size())
}

func TestAWrongCommandLineIsRefusedWithAllThatIsWrong(t *testing.T) {
	var out, errs bytes.Buffer
	args := []string{"--workers", "2", "--blocks", "1,2,-1", "--steps", "0", "--width", "10", "--lr", "-1", "--plot", "no/such/folder.png", "--prompt", "", "--device", "gpu", "extra"}
	require.Equal(t, 2, run(t.Context(), args, &out, &errs))
	for _, part := range []string{"2 workers for 3 stages", "-1 blocks", "--steps 0", "--width 10 cannot be shared by 4 heads", "--lr -1", "no/such", "--prompt", "--device gpu: expected auto, cpu, cuda or cuda:N", `"extra"`} {
		require.Contains(t, errs.String(), part)
	}
	errs.Reset()
	require.Equal(t, 2, run(t.Context(), []string{"--blocks", "1,x"}, &out, &errs))
	require.Contains(t, errs.String(), `"x" is not a number`)
}

func TestABadTextEndsAllWorkersWithItsName(t *testing.T) {
	var out, errs bytes.Buffer
	require.Equal(t, 1, run(t.Context(), []string{"--data", filepath.Join(t.TempDir(), "absent.txt"), "--plot", ""}, &out, &errs))
	require.Contains(t, errs.String(), "absent.txt")
	errs.Reset()
	require.Equal(t, 1, run(t.Context(), small(t, "--workers", "1", "--prompt", "Ü", "--plot", ""), &out, &errs))
	require.Contains(t, errs.String(), "not in the text")
}

// firstWord tells when something was written.
type firstWord struct {
	once sync.Once
	came chan struct{}
}

func (w *firstWord) Write(p []byte) (int, error) {
	w.once.Do(func() { close(w.came) })
	return len(p), nil
}

func TestAStageThatIsKilledInTrainingEndsTheJobWithItsName(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	fifo, out := filepath.Join(t.TempDir(), "pid"), &firstWord{came: make(chan struct{})}
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	spec := agent.Spec{
		Program: self, Args: small(t, "--steps", "1000000", "--plot", ""), NprocPerNode: 3, Stdout: out,
		Env: append(os.Environ(), "TEST_PID_TO="+fifo),
	}
	ended := make(chan error, 1)
	go func() { _, err := agent.Run(t.Context(), spec); ended <- err }()
	raw, err := os.ReadFile(fifo)
	require.NoError(t, err)
	var pid int
	_, err = fmt.Sscan(string(raw), &pid)
	require.NoError(t, err)
	<-out.came
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	killed := time.Now()
	err = <-ended
	require.Less(t, time.Since(killed), 10*time.Second)
	var failed *agent.WorkerError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, 128+9, failed.Code)
	require.Contains(t, failed.Report(), "worker2")
}

func TestARatioThatCannotBeIsCalledNoise(t *testing.T) {
	f := figures{PerStep: 8, Step: 1, Stages: make([]spent, 3), Ratio: 0.6, AtBest: 0.7, Even: 2. / 3}
	s := sizes{Blocks: []int{1, 1, 0}}
	var out bytes.Buffer
	f.print(&out, s)
	require.Contains(t, out.String(), "60.0 % of that stage's throughput, a bubble of 40.0 %; 70.0 % is the most with these stages, and m/(m+p-1) = 66.7 %")
	out.Reset()
	f.Ratio = 1.294
	f.print(&out, s)
	require.Contains(t, out.String(), "129.4 % of that stage's throughput, more than can be: the machine is too noisy")
	require.NotContains(t, out.String(), "bubble of")
}
