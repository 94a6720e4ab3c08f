package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic/internal/output"
	"github.com/weft-project/weft/elastic/internal/process"
	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/internal/secret"
)

// run runs a job to its end and checks that nothing of it is left.
func run(t *testing.T, c context.Context, spec Spec) (*Result, error) {
	t.Helper()
	var result *Result
	var err error
	require.Empty(t, strayed(func() { result, err = Run(c, spec) }), "goroutines that outlived Run")
	return result, err
}

func TestEveryWorkerGetsItsPlaceInTheJob(t *testing.T) {
	t.Parallel()
	spec := job(t, "environment", 3)
	spec.Stdout, spec.Stderr = &proctest.Output{}, os.Stderr
	spec.Role, spec.RunID = "trainer", "run-7"
	spec.Args = []string{"--shard=${local_rank}", "of", "3"}
	result, err := run(t, t.Context(), spec)
	require.NoError(t, err)
	byRank := map[string]map[string]string{}
	for line := range strings.Lines(spec.Stdout.(*proctest.Output).String()) {
		rank, kv, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		require.True(t, ok, line)
		if byRank[rank] == nil {
			byRank[rank] = map[string]string{}
		}
		if args, ok := strings.CutPrefix(kv, "args "); ok {
			byRank[rank]["args"] = args
		}
		k, v, _ := strings.Cut(kv, "=")
		byRank[rank][k] = v
	}
	require.Len(t, byRank, 3)
	require.Zero(t, result.Restarts)
	for i := range 3 {
		n := strconv.Itoa(i)
		env := byRank["["+n+"]"]
		for k, want := range map[string]string{
			"RANK": n, "LOCAL_RANK": n, "ROLE_RANK": n, "GROUP_RANK": "0", "ROLE_NAME": "trainer",
			"WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3", "ROLE_WORLD_SIZE": "3", "GROUP_WORLD_SIZE": "1",
			"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": strconv.Itoa(result.MasterPort), "OMP_NUM_THREADS": "1",
			"TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0", "TORCHELASTIC_RUN_ID": "run-7",
			"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", "args": fmt.Sprintf("[--shard=%d of 3]", i),
		} {
			require.Equal(t, want, env[k], "%s of rank %d", k, i)
		}
		require.NoError(t, secret.Check(env["WEFT_TOKEN"]))
		require.Equal(t, byRank["[0]"]["WEFT_TOKEN"], env["WEFT_TOKEN"])
		require.NotContains(t, env, "WEFT_TTY")
		require.NotEmpty(t, env["TORCHELASTIC_ERROR_FILE"])
		require.Equal(t, Exit{Rank: i, LocalRank: i, PID: result.Workers[i].PID}, result.Workers[i])
	}
}

func TestAJobGoesOnAfterAFailureThatItsSpecSpares(t *testing.T) {
	t.Parallel()
	spec := job(t, "fail", 3)
	out := &proctest.Output{}
	spec.Stdout, spec.Stderr = out, out
	path := fifo(t, &spec)
	c, cancel := context.WithCancelCause(t.Context())
	var spared []Exit
	spec.GoesOn = func(e Exit) bool { spared = append(spared, e); return true }
	go func() { // open the way for rank 1 when the others wait
		defer cancel(errTestStop)
		out.Await(t, "] ready", 2)
		if f, err := os.OpenFile(path, os.O_WRONLY, 0); err == nil {
			_ = f.Close()
			out.Await(t, "2 workers left", 1)
		}
	}()
	result, err := run(t, c, spec)
	require.ErrorIs(t, err, errTestStop, "not the failure")
	require.Len(t, spared, 1, "ends on request are no failures")
	require.Equal(t, 3, spared[0].Code)
	require.Equal(t, spared[0], result.Workers[1])
}

var errTestStop = errors.New("the test stops the job")

func TestTheFirstFailureEndsTheJobAndIsReportedWithItsLastWords(t *testing.T) {
	spec := job(t, "fail", 3)
	out := &proctest.Output{}
	spec.Stdout, spec.Stderr = out, out
	path := fifo(t, &spec)
	go func() { // open the way for rank 1 when the others wait
		out.Await(t, "] ready", 2)
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err == nil {
			_ = f.Close()
		}
	}()
	result, err := run(t, t.Context(), spec)
	var failure *WorkerError
	require.ErrorAs(t, err, &failure)
	require.Equal(t, 1, failure.Rank)
	require.Equal(t, 3, failure.Code)
	require.Len(t, failure.Stderr, 10)
	require.Equal(t, "last words without a line end", failure.Stderr[9])
	report := strings.Split(failure.Report(), "\n")
	require.Equal(t, fmt.Sprintf("worker1 (rank 1, pid %d) exited with code 3", failure.PID), report[len(report)-1])
	require.Contains(t, out.String(), "[1] last words without a line end\n")
	require.Contains(t, out.String(), "exited with code 3; stopping 2 workers\n")
	for _, i := range []int{0, 2} {
		require.Equal(t, int(syscall.SIGTERM), result.Workers[i].Signal)
	}
}

func TestAKilledWorkerIsNamedWithItsSignal(t *testing.T) {
	t.Parallel()
	spec := job(t, "killed", 2)
	out := &proctest.Output{}
	spec.Stdout, spec.Stderr = out, out
	path := fifo(t, &spec)
	go func() {
		out.Await(t, "[0] ready", 1)
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err == nil {
			_ = f.Close()
		}
	}()
	_, err := run(t, t.Context(), spec)
	var failure *WorkerError
	require.ErrorAs(t, err, &failure)
	require.Equal(t, 137, failure.Code)
	require.Equal(t, fmt.Sprintf("worker1 (rank 1, pid %d) was killed by signal 9 (SIGKILL)", failure.PID), failure.Report())
}

func TestAProgramWhoseInterpreterIsNotThereIsSaidOnceWithThat(t *testing.T) {
	t.Parallel()
	spec := job(t, "wait", 1)
	out := &proctest.Output{}
	spec.Stdout, spec.Stderr = out, out
	spec.Program = filepath.Join(t.TempDir(), "script")
	require.NoError(t, os.WriteFile(spec.Program, []byte("#!/nowhere/shell\n"), 0o700))
	_, err := run(t, t.Context(), spec)
	require.ErrorContains(t, err, "worker0 (rank 0) did not start: fork/exec "+spec.Program+": no such file or directory: the interpreter that its first line names,")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.Empty(t, out.String(), "the error says it")
}

func TestCancellingEndsEveryWorker(t *testing.T) {
	t.Parallel()
	spec := job(t, "wait", 3)
	out := &proctest.Output{}
	spec.Stdout, spec.Stderr = out, out
	why := errors.New("the operator had enough")
	c, cancel := context.WithCancelCause(t.Context())
	go func() {
		out.Await(t, "] ready", 3)
		cancel(why)
	}()
	result, err := run(t, c, spec)
	require.ErrorIs(t, err, why)
	for _, w := range result.Workers {
		require.Equal(t, int(syscall.SIGTERM), w.Signal, w)
	}
	require.Contains(t, out.String(), "weft: the operator had enough; stopping 3 workers\n")
}

func TestACancelledContextStartsNothing(t *testing.T) {
	t.Parallel()
	c, cancel := context.WithCancel(t.Context())
	cancel()
	result, err := run(t, c, job(t, "wait", 1))
	require.ErrorIs(t, err, context.Canceled)
	require.Nil(t, result)
}

func TestAWorkerThatIgnoresSIGTERMIsKilledAfterTheGrace(t *testing.T) {
	t.Parallel()
	spec := job(t, "ignore", 2)
	out := &proctest.Output{}
	spec.Stdout, spec.Stderr = out, out
	spec.Grace = 50 * time.Millisecond
	c, cancel := context.WithCancel(t.Context())
	go func() {
		out.Await(t, "] ready", 2)
		cancel()
	}()
	result, err := run(t, c, spec)
	require.ErrorIs(t, err, context.Canceled)
	for _, w := range result.Workers {
		require.Equal(t, int(syscall.SIGKILL), w.Signal, w)
	}
	require.Contains(t, out.String(), "2 workers did not end within 50ms of SIGTERM; killing\n")
}

func TestWhatAWorkerLeavesRunningIsKilled(t *testing.T) {
	t.Parallel()
	spec := job(t, "leave", 1)
	released := heldFifo(t, fifo(t, &spec))
	_, err := run(t, t.Context(), spec)
	require.NoError(t, err)
	require.NoError(t, released(), "the process that the worker left still holds the fifo")
}

func TestAProcessThatLeftItsGroupDelaysTheEndByABoundedTime(t *testing.T) {
	t.Parallel()
	spec := job(t, "desert", 1)
	out := &proctest.Output{}
	spec.Stdout = out
	released := heldFifo(t, fifo(t, &spec))
	_, err := run(t, t.Context(), spec)
	require.NoError(t, err)
	var pid int
	_, err = fmt.Sscanf(out.String(), "[0] left %d", &pid)
	require.NoError(t, err, out.String())
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL), "it was out of reach, so it must still run")
	require.NoError(t, released())
}

func TestTheWorkersDieWithAKilledAgent(t *testing.T) {
	t.Parallel()
	spec := job(t, "agent", 1)
	released := heldFifo(t, fifo(t, &spec))
	agent := exec.Command(spec.Program)
	agent.Env = spec.Env
	out := &proctest.Output{}
	agent.Stdout, agent.Stderr = out, out
	require.NoError(t, agent.Start())
	out.Await(t, "[0] holding", 1)
	require.NoError(t, agent.Process.Kill())
	require.NoError(t, released(), "the worker outlived its agent")
	require.Error(t, agent.Wait())
}

func TestTheJobsStoreIsThereForTheWorkersAndGoneAfterwards(t *testing.T) {
	t.Parallel()
	spec := job(t, "dial", 2)
	spec.Stderr = os.Stderr
	result, err := run(t, t.Context(), spec)
	require.NoError(t, err)
	addr := net.JoinHostPort(result.MasterAddr, strconv.Itoa(result.MasterPort))
	l, err := net.Listen("tcp", addr)
	require.NoError(t, err, "the port is free again")
	defer l.Close()
	spec.MasterPort = result.MasterPort
	_, err = run(t, t.Context(), spec)
	require.ErrorContains(t, err, "give another port, or 0 for a free one")
}

func TestOutputThatNobodyReadsStallsNobodyAndIsSaidAtTheEnd(t *testing.T) {
	t.Parallel()
	spec := job(t, "environment", 1)
	spec.Stdout = brokenWriter{syscall.EPIPE}
	_, err := run(t, t.Context(), spec)
	require.ErrorIs(t, err, ErrNoReader)
	require.NotErrorIs(t, err, ErrOutput)
}

func TestOutputThatCannotBeWrittenStallsNobodyAndIsAnErrorAtTheEnd(t *testing.T) {
	t.Parallel()
	for _, lose := range []func(*Spec){
		func(s *Spec) { s.Stdout = brokenWriter{syscall.ENOSPC} },
		func(s *Spec) { s.Stderr = brokenWriter{syscall.ENOSPC} },
	} {
		spec := job(t, "speak", 2)
		lose(&spec)
		result, err := run(t, t.Context(), spec)
		require.ErrorIs(t, err, ErrOutput)
		require.ErrorIs(t, err, syscall.ENOSPC)
		for _, w := range result.Workers {
			require.Zero(t, w.Code)
		}
	}
}

type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }

func TestTheStrayCheckSeesAStray(t *testing.T) {
	a := agent{losses: &losses{}}
	a.losses.mu.Lock()
	done := make(chan struct{})
	mark := marked(func() {
		go func() {
			defer close(done)
			_ = a.unwritten()
		}()
	})
	for !strings.Contains(strays(mark, 1), "agent.(*agent)") {
	}
	a.losses.mu.Unlock()
	<-done
	require.Empty(t, strays(mark, 1000))

	cmd := exec.Command("/bin/cat")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	nothing := func() *output.Lines {
		return &output.Lines{Sink: output.Hidden(), Prefix: output.NewLabel("")}
	}
	var p *process.Process
	mark = marked(func() { p, err = process.Start(cmd, false, nothing(), nothing()) })
	require.NoError(t, err)
	for !strings.Contains(strays(mark, 1), "process.(*Process)") {
	}
	require.NoError(t, stdin.Close())
	p.Wait()
	p.Heard()
	require.Empty(t, strays(mark, 1000))
}
