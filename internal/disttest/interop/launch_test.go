//go:build interop

package interop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/secret/secrettest"
	"github.com/weft-project/weft/rpc"
)

// workerVariable makes the test binary a worker of Weft's.
const workerVariable = "WEFT_INTEROP_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(workerVariable) == "" {
		os.Exit(m.Run())
	}
	if err := work(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// work calls every other worker of the job that the environment tells of.
func work(c context.Context) error {
	hear := rpc.Define("hear", func(_ context.Context, from string) (string, error) {
		return fmt.Sprintf("worker%s heard %s", os.Getenv("RANK"), from), nil
	})
	w, err := rpc.Join(c, rpc.Config{Functions: []rpc.Function{hear}})
	if err != nil {
		return err
	}
	for rank := range w.WorldSize() {
		if rank == w.Rank() {
			continue
		}
		heard, err := hear.Call(w.Context(c), fmt.Sprint("worker", rank), w.Name())
		if err != nil {
			return errors.Join(err, w.Close())
		}
		fmt.Println(heard)
	}
	return w.Leave(c)
}

// launched is agents of one job, all on this machine.
type launched struct {
	argv []string
	env  []string
}

// run runs so many agents at a time, and gives each one's output and error.
func (l launched) run(t *testing.T, agents int) (said []string, errs []error) {
	t.Helper()
	c, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	said, errs = make([]string, agents), make([]error, agents)
	var runs sync.WaitGroup
	for i := range agents {
		runs.Go(func() {
			var out bytes.Buffer
			cmd := exec.CommandContext(c, l.argv[0], l.argv[1:]...)
			cmd.Env = append(append(environment(), "OMP_NUM_THREADS=1", "TMPDIR="+t.TempDir()), l.env...)
			cmd.Stdout, cmd.Stderr = &out, &out
			cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // so that it ends its workers
			cmd.WaitDelay = 10 * time.Second
			errs[i] = cmd.Run()
			said[i] = out.String()
		})
	}
	runs.Wait()
	return said, errs
}

// freeEndpoint is an address of a loopback that is nobody else's.
func freeEndpoint(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

func TestScriptsOfPyTorchRunUnderOurLauncher(t *testing.T) {
	start(t) // says what release it is, or what to do where there is none
	dir := t.TempDir()
	weft := filepath.Join(dir, "weft")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", weft, "github.com/weft-project/weft/cmd/weft").CombinedOutput()
	require.NoError(t, err, string(out))
	script, err := filepath.Abs(filepath.Join("testdata", "allreduce.py"))
	require.NoError(t, err)
	job := func(t *testing.T, fail string, flags ...string) launched {
		argv := append([]string{weft, "run", "--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-endpoint=" + freeEndpoint(t), "--rdzv-id=sums"}, flags...)
		return launched{append(argv, *python, script), []string{"WEFT_TOKEN=" + secrettest.Token("job"), "FAIL=" + fail, "MARK=" + filepath.Join(t.TempDir(), "failed")}}
	}
	for _, x := range []struct {
		name, fail string
		flags      []string
	}{
		{"two agents of two workers", "", nil},
		{"a worker that fails amid is a restart of the group", "amid", []string{"--max-restarts=1", "--restart-policy=group"}},
		{"a worker that fails before is a restart of the group", "before", []string{"--max-restarts=1", "--restart-policy=group"}},
		{"a worker that fails before is replaced in its place", "before", []string{"--max-restarts=1", "--restart-policy=worker"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			said, errs := job(t, x.fail, x.flags...).run(t, 2)
			all := strings.Join(said, "\n--- another agent:\n")
			require.NoError(t, errors.Join(errs...), all)
			for rank := range 4 { // 1+2+3+4, which are four times that in the second sum
				require.Equal(t, 1, strings.Count(all, fmt.Sprintf("[%d] rank %d of 4: 40\n", rank, rank)), all)
			}
			require.Equal(t, x.fail != "", strings.Contains(all, "exited with code 3"), all)
		})
	}
	t.Run("one that has no restart ends the job on both", func(t *testing.T) {
		said, errs := job(t, "amid").run(t, 2)
		all := strings.Join(said, "\n--- another agent:\n")
		require.Error(t, errs[0], all)
		require.Error(t, errs[1], all)
		require.Contains(t, all, "the job failed")
		require.NotContains(t, all, ": 40\n")
	})
}

func TestOurWorkersRunUnderPyTorchsLauncher(t *testing.T) {
	p := start(t)
	self, err := os.Executable()
	require.NoError(t, err)
	for name, x := range map[string]struct {
		agents int
		flags  []string
	}{
		"standalone":                        {1, []string{"--standalone", "--nproc_per_node=2"}},
		"one agent of two workers":          {1, []string{"--nnodes=1", "--nproc_per_node=2", "--rdzv_backend=c10d", "--rdzv_endpoint=" + freeEndpoint(t)}},
		"two agents of a worker each":       {2, []string{"--nnodes=2", "--nproc_per_node=1", "--rdzv_backend=c10d", "--rdzv_endpoint=" + freeEndpoint(t)}},
		"two agents that meet at our store": {2, []string{"--nnodes=2", "--nproc_per_node=1", "--rdzv_backend=c10d", "--rdzv_endpoint=" + p.ours(t).addr(), "--rdzv_conf=is_host=0"}},
		"the static rendezvous of torchrun": {1, []string{"--nnodes=1", "--nproc_per_node=2", "--rdzv_backend=static", fmt.Sprint("--master_port=", freePort(t)), "--master_addr=127.0.0.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			argv := append([]string{*python, "-m", "torch.distributed.run", "--no_python", "--redirects=9:1", "--tee=9:1", "--rdzv_id=ours"}, x.flags...)
			said, errs := launched{append(argv, self), []string{workerVariable + "=1", "WEFT_TOKEN=" + secrettest.Token("job")}}.run(t, x.agents)
			all := strings.Join(said, "\n--- another agent:\n")
			require.NoError(t, errors.Join(errs...), all)
			require.Contains(t, all, "worker0 heard worker1\n")
			require.Contains(t, all, "worker1 heard worker0\n")
		})
	}
}
