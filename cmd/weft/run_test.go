package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/transport"
)

func TestFlagsReachTheWorkersInBothSpellings(t *testing.T) {
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte(jobSecret+"\n"), 0o600))
	names := []string{"WORLD_SIZE", "TORCHELASTIC_RUN_ID", "ROLE_NAME", "MASTER_ADDR", "WEFT_TOKEN"}
	want := "WORLD_SIZE=2\nTORCHELASTIC_RUN_ID=seven\nROLE_NAME=trainer\nMASTER_ADDR=127.0.0.1\nWEFT_TOKEN=" + jobSecret + "\n"
	for _, flags := range []string{
		"--nproc-per-node=2 --rdzv-id=seven --role=trainer --master-addr=127.0.0.1 --no-prefix --token-file=" + token,
		"--nproc_per_node 2 --rdzv_id seven --role trainer --master_addr 127.0.0.1 --no_prefix --standalone --token_file " + token + " --",
		"--nproc-per-node 2 --nnodes 1:1 --run_id seven --role trainer --no-prefix --max_restarts 0 --token-file " + token,
	} {
		args := append([]string{"run"}, strings.Fields(flags)...)
		args = append(append(args, os.Args[0], "show"), names...)
		code, stdout, stderr := weft(t, args...)
		require.Zero(t, code, stderr)
		require.Len(t, stdout, 2*len(want), flags)
		for line := range strings.Lines(want) {
			require.Equal(t, 2, strings.Count(stdout, line), "%s in %s", line, flags)
		}
	}
}

func TestTheEnvironmentSetsWhatTheCommandLineDoesNot(t *testing.T) {
	t.Setenv("PET_NPROC_PER_NODE", "3")
	t.Setenv("PET_ROLE", "reader")
	t.Setenv("PET_RDZV_ID", "theirs")
	t.Setenv("PET_NO_PREFIX", "true")
	code, stdout, stderr := weft(t, "run", "--role", "writer", "--run-id", "ours", os.Args[0], "show", "ROLE_NAME", "TORCHELASTIC_RUN_ID")
	require.Zero(t, code, stderr)
	require.Equal(t, 3, strings.Count(stdout, "ROLE_NAME=writer\n"), stdout)
	require.Equal(t, 3, strings.Count(stdout, "TORCHELASTIC_RUN_ID=ours\n"), stdout)

	t.Setenv("PET_MASTER_PORT", "high")
	code, _, stderr = weft(t, "run", os.Args[0], "show")
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "PET_MASTER_PORT: ")
	require.Contains(t, stderr, `"--master-port" flag: expected a whole number`)
	_, _, stderr = weft(t, "run", "--no-prefix=x", os.Args[0])
	require.Contains(t, stderr, `"--no-prefix" flag: expected true or false`)
	for _, wrong := range []string{"5", "x", "5 apples"} {
		code, _, stderr = weft(t, "run", "--grace", wrong, os.Args[0])
		require.Equal(t, 2, code)
		require.Contains(t, stderr, `"--grace" flag: expected a duration, such as 5s or 1m30s`)
		require.NotContains(t, stderr, "time: ")
	}
	code, _, stderr = weft(t, "run", "--master-port", "0", "--role", "my role", os.Args[0])
	require.Equal(t, 2, code)
	require.Contains(t, stderr, `--role: expected at most 64 printable bytes of ASCII without spaces, got "my role"`)
}

func TestLanesReachTheWorkersAndUnknownOnesAreRefused(t *testing.T) {
	code, stdout, stderr := weft(t, "run", "--lanes", "local,quic", "--no-prefix", os.Args[0], "show", "WEFT_LANES")
	require.Zero(t, code, stderr)
	require.Equal(t, "WEFT_LANES=local,quic\n", stdout)
	t.Setenv("PET_LANES", "quic")
	_, stdout, _ = weft(t, "run", "--no-prefix", os.Args[0], "show", "WEFT_LANES")
	require.Equal(t, "WEFT_LANES=quic\n", stdout)
	code, _, stderr = weft(t, "run", "--lanes=avian", os.Args[0], "show")
	require.Equal(t, 2, code)
	lanes := strings.Join(transport.LaneNames(), ", ")
	require.Contains(t, stderr, `--lanes: there is no lane "avian"; there are `+lanes)
	_, help, _ := weft(t, "run", "--help")
	require.Regexp(t, `--lanes .*`+lanes, strings.Join(strings.Fields(help), " "))
}

func TestWhatFollowsTheProgramIsTheProgramsOwn(t *testing.T) {
	code, stdout, stderr := weft(t, "run", os.Args[0], "echo", "--nproc-per-node", "5", "--", "${local_rank}")
	require.Zero(t, code, stderr)
	require.Equal(t, "[0] [\"--nproc-per-node\" \"5\" \"--\" \"0\"]\n", stdout)
}

func TestTheFirstFailureGivesTheLastLineAndTheExitCode(t *testing.T) {
	t.Parallel()
	code, _, stderr := weft(t, "run", "--nproc-per-node", "3", os.Args[0], "fail")
	require.Equal(t, 7, code)
	require.Contains(t, stderr, "[1] the reason\n")
	require.Regexp(t, `weft: the job failed\nfirst failure, at [0-9:.]+: worker1 \(rank 1, pid \d+\) exited with code 7\n  its last lines on stderr:\n    the reason\nweft: worker1 \(rank 1, pid \d+\) exited with code 7\n$`, stderr)
}

func TestTheFirstFailuresErrorFileIsCopiedToThatOfALauncherOfThisOne(t *testing.T) {
	file := filepath.Join(t.TempDir(), "error.json")
	t.Setenv("TORCHELASTIC_ERROR_FILE", file)
	code, _, stderr := weft(t, "run", "--nproc-per-node", "2", os.Args[0], "fail")
	require.Equal(t, 7, code)
	b, err := os.ReadFile(file)
	require.NoError(t, err, stderr)
	require.Regexp(t, `"errorCode":7`, string(b))
	require.Regexp(t, `"message":"worker1 \(rank 1, pid \d+\) exited with code 7"`, string(b))
}

// process starts weft as a process of its own, with two waiting workers, and returns their pids
// when both are ready.
func process(t *testing.T) (cmd *exec.Cmd, out *bufio.Reader, pids [2]int) {
	t.Helper()
	cmd, out = pairOf(t, os.Args[0], "wait")
	return cmd, out, ready(t, out)
}

// pairOf starts weft as a process of its own, with two workers.
func pairOf(t *testing.T, args ...string) (cmd *exec.Cmd, out *bufio.Reader) {
	t.Helper()
	cmd = exec.Command(os.Args[0], append([]string{"run", "--nproc-per-node", "2"}, args...)...)
	cmd.Env = append(os.Environ(), "WEFT_TEST_PART=weft", "GORACE=atexit_sleep_ms=0")
	pipe, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = cmd.Stdout
	require.NoError(t, cmd.Start())
	return cmd, bufio.NewReader(pipe)
}

// ready waits until both workers are, and gives their pids.
func ready(t *testing.T, out *bufio.Reader) (pids [2]int) {
	t.Helper()
	for left := len(pids); left > 0; {
		line, err := out.ReadString('\n')
		require.NoError(t, err)
		if strings.HasPrefix(line, "weft: ") {
			continue
		}
		var rank, pid int
		_, err = fmt.Sscanf(line, "[%d] pid %d ready", &rank, &pid)
		require.NoError(t, err, line)
		pids[rank] = pid
		left--
	}
	return pids
}

func TestWorkersThatAllDieTogetherMeetAgain(t *testing.T) {
	t.Parallel()
	cmd, out := pairOf(t, "--max-restarts", "4", os.Args[0], "pair")
	before := ready(t, out)
	for range 2 {
		for _, pid := range before {
			require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		}
		again := ready(t, out)
		require.NotEqual(t, before, again)
		before = again
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NotContains(t, rest(t, out), "taken")
	require.Error(t, cmd.Wait())
}

func rest(t *testing.T, out *bufio.Reader) string {
	t.Helper()
	var b strings.Builder
	_, err := out.WriteTo(&b)
	require.NoError(t, err)
	return b.String()
}

func TestAKilledWorkerEndsTheJobAndIsNamedLast(t *testing.T) {
	t.Parallel()
	cmd, out, pids := process(t)
	require.NoError(t, syscall.Kill(pids[1], syscall.SIGKILL))
	text := rest(t, out)
	require.Error(t, cmd.Wait())
	require.Equal(t, 137, cmd.ProcessState.ExitCode())
	require.True(t, strings.HasSuffix(text, fmt.Sprintf("worker1 (rank 1, pid %d) was killed by signal 9 (SIGKILL)\n", pids[1])), text)
	require.ErrorIs(t, syscall.Kill(pids[0], 0), syscall.ESRCH)
}

func TestASignalToWeftEndsTheWorkersAndIsTheExitCode(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		cmd, out, pids := process(t)
		require.NoError(t, cmd.Process.Signal(sig))
		text := rest(t, out)
		require.Error(t, cmd.Wait())
		require.Equal(t, 128+int(sig), cmd.ProcessState.ExitCode(), text)
		require.Contains(t, text, fmt.Sprintf("weft: ended by signal %d", sig))
		for _, pid := range pids {
			require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
		}
	}
}

func TestASecondSignalKillsTheWorkersAndAllThatTheyHaveStarted(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	fifo, err := os.OpenFile(path, os.O_RDWR, 0) // for writing, too: else there is an end before there is a child
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0], "run", "--nproc-per-node", "2", "--grace", "10m", os.Args[0], "stubborn", path)
	cmd.Env = append(os.Environ(), "WEFT_TEST_PART=weft", "GORACE=atexit_sleep_ms=0")
	pipe, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	held := make([]byte, len("heldheld"))
	_, err = io.ReadFull(fifo, held)
	require.NoError(t, err)
	children, err := os.OpenFile(path, os.O_RDONLY, 0)
	require.NoError(t, err)
	require.NoError(t, fifo.Close())
	out := bufio.NewReader(pipe)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	line, err := out.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "weft: ended by signal 15 (terminated); stopping 2 workers\n", line)
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	require.Equal(t, "weft: asked to end at once; killing 2 workers\nweft: ended by signal 15 (terminated)\n", rest(t, out))
	more, err := io.ReadAll(children) // it ends when no child is left
	require.NoError(t, err)
	require.Empty(t, more)
	require.NoError(t, children.Close())
	require.Error(t, cmd.Wait())
	require.Equal(t, 143, cmd.ProcessState.ExitCode())
}

func TestASecretThatIsTooShortIsRefusedBeforeAnyWorkerStarts(t *testing.T) {
	t.Setenv("WEFT_TOKEN", "abc")
	code, stdout, stderr := weft(t, "run", os.Args[0], "show", "RANK")
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "$WEFT_TOKEN: the job's secret is too weak")
	require.Empty(t, stdout)
}
