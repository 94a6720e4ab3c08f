package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/disttest/proctest"
)

func TestFlagsOfSeveralMachinesThatCannotBeAreToldTogether(t *testing.T) {
	for flags, want := range map[string][]string{
		"--nnodes 2":   {"several machines need --rdzv-endpoint"},
		"--nnodes 2:1": {"expected N or MIN:MAX with 1 ≤ MIN ≤ MAX"},
		"--nnodes 1:x": {"expected N or MIN:MAX"},
		"--standalone --nnodes 2 --rdzv-endpoint localhost": {"--standalone: it is for one machine"},
		"--rdzv-backend zookeeper --restart-policy never":   {`expected store (or c10d), etcd or static, got "zookeeper"`, `expected worker or group, got "never"`},
		"--rdzv-backend static --nnodes 2 --node-rank 1":    {"missing: --master-addr"},
		"--nnodes 2 --master-addr 10.0.0.1 --node-rank 2 --master-port 65535 --restart-policy never": {"--node-rank: expected 0 to 1 with --nnodes 2, got 2",
			"--master-port: expected 1 to 65534, as the machines meet one port further, got 65535", `expected worker or group, got "never"`},
		"--nnodes 2:3 --node-rank 0 --master-addr 10.0.0.1 --grace 0s":                         {"--nnodes 2:3: machines that meet at --master-addr, each with its --node-rank, are a fixed number", "--grace"},
		"--nnodes 2:3 --node-rank 0 --rdzv-backend static --rdzv-endpoint 10.0.0.1 --grace 0s": {"--nnodes 2:3: machines that meet at --master-addr"},
		"--nnodes 2 --master-port 5": {"missing: --node-rank, --master-addr"},
		"--nnodes 2 --rdzv-backend static --node-rank 0 --rdzv-endpoint a:1 --master-addr b": {"--rdzv-endpoint a:1 is another place than --master-addr"},
		"--rdzv-conf join_timeout,last_call_timeout=-1,color=red":                            {"expected k=v,…, got \"join_timeout\"", "last_call_timeout: expected a number of seconds", `unknown key "color"`},
		"--max-restarts -1": {"--max-restarts: expected 0 or more, got -1"},
		"--nnodes 2 --rdzv-endpoint localhost:1 --node-rank 5": {"--node-rank: expected 0 to 1, got 5"},
	} {
		code, _, stderr := weft(t, append(append([]string{"run"}, strings.Fields(flags)...), os.Args[0], "show", "RANK")...)
		require.Equal(t, 2, code, "%s: %s", flags, stderr)
		for _, part := range want {
			require.Contains(t, stderr, part, flags)
		}
	}
}

// twoLaunchers runs a job of two machines with two workers each, which play a part, and counts the
// lines that they say.
func twoLaunchers(t *testing.T, part ...string) map[string]int {
	t.Helper()
	endpoint := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(250), rand.IntN(250), 1+rand.IntN(250)) // where nobody else listens
	var outs, said [2]string
	var errs [2]error
	var runs sync.WaitGroup
	for n := range outs {
		runs.Go(func() {
			cmd := exec.Command(os.Args[0], append([]string{"run", "--nnodes=2", "--nproc-per-node=2", "--rdzv-endpoint=" + endpoint, "--no-prefix", os.Args[0]}, part...)...)
			cmd.Env = append(os.Environ(), "WEFT_TEST_PART=weft", "GORACE=atexit_sleep_ms=0", "WEFT_TOKEN="+jobSecret)
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			outs[n], errs[n], said[n] = string(out), err, stderr.String()
		})
	}
	runs.Wait()
	require.NoError(t, errors.Join(errs[:]...), "%q and %q", outs, said)
	require.NotContains(t, said[0]+said[1], "out of reach", "neither waits for the other at the end")
	count := map[string]int{} // the lines of two workers come in any order
	for line := range strings.Lines(outs[0] + outs[1]) {
		count[strings.TrimSuffix(line, "\n")]++
	}
	return count
}

func TestALauncherThatCannotJoinAJobSaysWhy(t *testing.T) {
	t.Parallel()
	at := proctest.Address()
	host := &launchers{t: t, args: []string{"--store-plain", "never", "--nnodes", "2", "--rdzv-id", "j", "--rdzv-endpoint", at, os.Args[0], "stay", "never"}}
	cmd := host.launch()
	host.Await(t, "weft: waiting for 1 more node at "+at+", job j, 3 s of 600 s\n", 1)
	run := func(token, id string, flags ...string) string {
		if token != "" {
			flags = append(flags, "--token-file", secretFile(t, token))
		}
		code, _, stderr := weft(t, slices.Concat([]string{"run", "--nnodes", "2", "--rdzv-endpoint", at, "--rdzv-id", id}, flags, []string{os.Args[0], "show", "RANK"})...)
		require.Equal(t, 1, code, stderr)
		return stderr
	}
	require.Contains(t, run(otherSecret, "j"), "compare the tokens", "another token")
	require.Contains(t, run("", "j"), "give it the same (--token-file or $WEFT_TOKEN", "without TLS")
	require.Contains(t, run(jobSecret, "j", "--max-restarts", "9"), "start all nodes with the same", "other settings")
	require.Contains(t, run(jobSecret, "k"), "another job's id", "the same token for another job")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.Error(t, cmd.Wait())
	require.Contains(t, host.String(), "ended by signal 15")
}

func TestTheStaticFormOfTorchrunAndKubeflowMakesOneWorldWithoutABackend(t *testing.T) {
	t.Parallel()
	host, port, err := net.SplitHostPort(proctest.Address())
	require.NoError(t, err)
	var outs [2]string
	var errs [2]error
	var runs sync.WaitGroup
	for n := range outs {
		cmd := exec.Command(os.Args[0], "run", "--nnodes", "2", "--node-rank", strconv.Itoa(n), "--master-addr", host, "--master-port", port, "--no-prefix",
			os.Args[0], "show", "RANK", "MASTER_ADDR", "MASTER_PORT")
		cmd.Env = append(os.Environ(), "WEFT_TEST_PART=weft", "GORACE=atexit_sleep_ms=0", "WEFT_TOKEN="+jobSecret)
		if n == 1 { // as in a pod of Kubeflow's
			cmd.Args = slices.Concat(cmd.Args[:2], cmd.Args[len(cmd.Args)-6:])
			cmd.Env = append(cmd.Env, "PET_NNODES=2", "PET_NODE_RANK=1", "PET_MASTER_ADDR="+host, "PET_MASTER_PORT="+port)
		}
		runs.Go(func() {
			out, err := cmd.CombinedOutput()
			outs[n], errs[n] = string(out), err
		})
	}
	runs.Wait()
	require.NoError(t, errors.Join(errs[:]...), "%q", outs)
	for n, out := range outs {
		require.Contains(t, out, fmt.Sprintf("RANK=%d\nMASTER_ADDR=%s\nMASTER_PORT=%s\n", n, host, port))
	}
}

func TestTwoLaunchersMakeOneWorld(t *testing.T) {
	t.Parallel()
	require.Equal(t, map[string]int{"RANK=0": 1, "RANK=1": 1, "RANK=2": 1, "RANK=3": 1, "WORLD_SIZE=4": 4, "GROUP_WORLD_SIZE=2": 4, "TORCHELASTIC_RUN_ID=none": 4},
		twoLaunchers(t, "show", "RANK", "WORLD_SIZE", "GROUP_WORLD_SIZE", "TORCHELASTIC_RUN_ID"))
}

func TestWorkersOfTwoLaunchersCallEachOther(t *testing.T) {
	t.Parallel()
	want := map[string]int{}
	for from := range 4 {
		for to := range 4 {
			want[fmt.Sprintf("hello %d from worker %d", from, to)] = 1
		}
	}
	require.Equal(t, want, twoLaunchers(t, "hello"))
}
