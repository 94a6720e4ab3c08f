package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/cmd/weft/internal/cli"
	"github.com/weft-project/weft/cmd/weft/internal/secrets"
	"github.com/weft-project/weft/elastic/agent"
	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/internal/disttest/hostile"
	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/internal/secret/secrettest"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

var (
	jobSecret   = secrettest.Token("job")
	otherSecret = secrettest.Token("another job")
)

// job starts n workers of a world in this process, and gives the URL of their store. The last one
// has no lane but QUIC.
func job(t *testing.T, world, n int) string {
	t.Helper()
	leak.Check(t)
	t.Setenv("WEFT_TOKEN", jobSecret)
	quiet := slog.New(slog.DiscardHandler)
	srv, err := store.Serve(store.ServerConfig{Addr: "127.0.0.1:0", Logger: quiet})
	require.NoError(t, err)
	t.Cleanup(func() { srv.Close() })
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		st, err := store.Dial(t.Context(), store.ClientConfig{Addr: srv.Addr()})
		require.NoError(t, err)
		t.Cleanup(func() { st.Close() })
		cfg := rpc.Config{Store: st, Rank: i, WorldSize: world, Logger: quiet, JoinTimeout: time.Minute}
		if i == world-1 {
			cfg.Lanes = []string{transport.LaneQUIC}
		}
		wg.Go(func() {
			w, err := rpc.Join(t.Context(), cfg)
			if errs[i] = err; err == nil {
				t.Cleanup(func() { w.Close() })
			}
		})
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	return "tcp://" + srv.Addr()
}

func TestDoctorShowsTheLanesOfARunningJobsPairs(t *testing.T) {
	url := job(t, 3, 3)
	code, stdout, stderr := weft(t, "doctor", "--init", url, "--timeout", "1m")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "workers 3, linked pairs 3\n")
	require.Regexp(t, `(?m)^WORKER +WORKER +CALLS +TENSORS +WHY NOT BETTER$`, stdout)
	require.Regexp(t, `(?m)^worker0 +worker1 +(local +local|quic +bulk)`, stdout)
	require.Regexp(t, `(?m)^worker0 +worker2 +quic +quic +local: .*it was not asked for; bulk: .*it was not asked for$`, stdout)
	require.Regexp(t, `(?m)^worker1 +worker2 +quic +quic +local`, stdout)
	require.NotContains(t, stdout, "not reached")
	require.NotContains(t, stdout+stderr, jobSecret)

	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(jobSecret+"\n"), 0o600))
	t.Setenv("WEFT_TOKEN", "")
	code, _, stderr = weft(t, "doctor", "--init", url, "--timeout", "1m")
	require.Equal(t, cli.CodeUsage, code)
	require.Contains(t, stderr, "--init needs the job's secret, or certificates: "+secrets.GiveOwn)
	code, again, stderr := weft(t, "doctor", "--init", url, "--timeout", "1m", "--token-file", file)
	require.Zero(t, code, stderr)
	require.Equal(t, stdout, again)

	t.Setenv("WEFT_TOKEN", otherSecret)
	code, stdout, stderr = weft(t, "doctor", "--init", url, "--timeout", "1m")
	require.Equal(t, cli.CodeFailed, code)
	require.Contains(t, stderr, "do not take this token, or these certificates, or are of another job's id: give the job's own")
	require.Empty(t, stdout)
	t.Setenv("WEFT_TOKEN", "short")
	code, _, stderr = weft(t, "doctor", "--init", url)
	require.Equal(t, cli.CodeUsage, code)
	require.Contains(t, stderr, "too weak")
}

func TestDoctorAsksAJobThatHasCertificatesOfItsOwn(t *testing.T) {
	set := func(f hostile.Files) {
		t.Setenv(rpc.CAVariable, f.CA)
		t.Setenv(rpc.CertVariable, f.Cert)
		t.Setenv(rpc.KeyVariable, f.Key)
	}
	files, err := hostile.Certificates(t.TempDir())
	require.NoError(t, err)
	others, err := hostile.Certificates(t.TempDir())
	require.NoError(t, err)
	set(files)
	url := job(t, 2, 2)
	ask := func(more ...string) (int, string, string) {
		return weft(t, append([]string{"doctor", "--init", url, "--timeout", "1m"}, more...)...)
	}
	code, stdout, stderr := ask()
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "workers 2, linked pairs 1\n")
	set(others)
	code, again, stderr := ask("--ca", files.CA, "--cert", files.Cert, "--key", files.Key)
	require.Zero(t, code, stderr)
	require.Equal(t, stdout, again)
	code, _, stderr = ask()
	require.Equal(t, cli.CodeFailed, code)
	require.Contains(t, stderr, "do not take this token, or these certificates")
	for _, flags := range [][]string{{"--ca", files.CA}, {"--token-file", "x", "--ca", files.CA, "--cert", files.Cert, "--key", files.Key}} {
		code, _, stderr = ask(flags...)
		require.Equal(t, cli.CodeUsage, code, stderr)
	}
}

func TestDoctorFindsTheWorkersOfAnElasticJob(t *testing.T) {
	t.Parallel()
	at, secret := proctest.Address(), secretFile(t, jobSecret)
	ask := func(args ...string) (code int, stdout, stderr string) {
		return weft(t, append(args, "--token-file", secret)...)
	}
	out := &proctest.Output{}
	codes := make(chan int, 1)
	go func() {
		codes <- here([]string{"run", "--nnodes", "1:2", "--rdzv-endpoint", at, "--rdzv-id", "j", "--token-file", secret, "--rdzv-conf", "last_call_timeout=0.1", "--nproc-per-node", "2",
			"--max-restarts", "1", "--grace", "1s", os.Args[0], "epochs"}, out, out)
	}()
	pids := func(epoch int) (pids []int) {
		out.Await(t, fmt.Sprintf("epoch %d pid", epoch), 2)
		for _, m := range regexp.MustCompile(fmt.Sprintf(`epoch %d pid (\d+)`, epoch)).FindAllStringSubmatch(out.String(), -1) {
			pid, err := strconv.Atoi(m[1])
			require.NoError(t, err)
			pids = append(pids, pid)
		}
		return pids
	}
	workers := pids(1)
	url := regexp.MustCompile(`weft: the workers' store is (tcp://\S+)`).FindStringSubmatch(out.String())[1]
	for _, init := range []string{"tcp://" + at, url} {
		code, stdout, stderr := ask("doctor", "--init", init, "--timeout", "1m", "--rdzv-id", "j")
		require.Zero(t, code, stderr)
		require.Contains(t, stdout, "store "+url+", epoch 1 of its elastic job\nworkers 2, ")
	}
	code, stdout, stderr := ask("status", "--rdzv-endpoint", at, "--rdzv-id", "j")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "\nthe workers' store: "+url+"\n")
	code, stdout, stderr = ask("status", "--groups", "--rdzv-endpoint", at, "--rdzv-id", "j")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "\nthe workers' store: "+url+"\n")
	require.Regexp(t, `(?m)^GROUP +WORKER +WAITS IN +AT +FOR +FOR WHOM\npair \(rank 0 of 2\) +worker0 +Barrier by spread #0 +main_test\.go:\d+ +\S+ +worker1$`, stdout)
	code, _, stderr = ask("status", "--groups", "--watch", "--rdzv-endpoint", at, "--rdzv-id", "j")
	require.Equal(t, cli.CodeUsage, code)
	require.Contains(t, stderr, "--groups is for one look")
	code, _, stderr = ask("doctor", "--init", "tcp://"+at, "--rdzv-id", "k")
	require.Equal(t, cli.CodeFailed, code)
	require.Contains(t, stderr, "\ngive the id of its job, by --rdzv-id, and its secret, or certificates, if those differ, too")
	code, _, stderr = weft(t, "doctor", "--init", "tcp://"+at, "--rdzv-id", "j", "--token-file", secretFile(t, otherSecret))
	require.Equal(t, cli.CodeFailed, code)
	require.Contains(t, stderr, "or other certificates, or it is another job's id: "+secrets.GiveOwn)

	require.NoError(t, syscall.Kill(workers[0], syscall.SIGKILL)) // it is replaced, in another epoch
	workers = pids(2)
	code, stdout, stderr = ask("doctor", "--init", "tcp://"+at, "--timeout", "1m", "--rdzv-id", "j")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, ", epoch 2 of its elastic job\nworkers 2, ")

	require.NoError(t, syscall.Kill(workers[1], syscall.SIGSTOP))
	code, stdout, stderr = ask("doctor", "--init", url, "--timeout", "500ms", "--rdzv-id", "j")
	require.Equal(t, cli.CodeFailed, code)
	require.Contains(t, stdout, "not reached:\n")
	require.Contains(t, stderr, "1 of 2 workers were not reached")
	require.NoError(t, syscall.Kill(workers[1], syscall.SIGCONT))
	require.NoError(t, syscall.Kill(workers[0], syscall.SIGKILL)) // no restart is left
	require.Equal(t, 137, <-codes, out.String())
}

func TestTheCommandThatDoctorNamesForAJobWithoutWorkersWorksAsItStands(t *testing.T) {
	t.Setenv("WEFT_TOKEN", "")
	dir := filepath.Join(t.TempDir(), "it's mine")
	require.NoError(t, os.Mkdir(dir, 0o700))
	f, err := hostile.Certificates(dir, "weft://j/worker0")
	require.NoError(t, err)
	id, err := transport.IdentityFromFiles(transport.IdentityFiles{CA: f.CA, Cert: f.Cert, Key: f.Key, Job: "j"})
	require.NoError(t, err)
	token := secretFile(t, jobSecret)
	shared, err := transport.IdentityFromToken(jobSecret, "j", "me", nil)
	require.NoError(t, err)
	for _, c := range []struct {
		id    *transport.Identity
		flags []string
	}{{id, []string{"--ca", f.CA, "--cert", f.Cert, "--key", f.Key}}, {shared, []string{"--token-file", token}}} {
		at := proctest.Address()
		_, _, st := meetsWith(t, c.id.StoreTLS(), at, "j", rdzv.Config{Min: 2})
		require.Eventually(t, func() bool {
			_, err := rdzv.Look(t.Context(), agent.RendezvousOf("j", st))
			return err == nil
		}, time.Minute, time.Millisecond)
		code, _, stderr := weft(t, append([]string{"doctor", "--init", "tcp://" + at, "--rdzv-id", "j"}, c.flags...)...)
		require.Equal(t, cli.CodeFailed, code)
		_, command, found := strings.Cut(stderr, "; more tells: weft ")
		require.True(t, found, stderr)
		words, err := exec.Command("sh", "-c", "printf '%s\\n' "+command).Output()
		require.NoError(t, err)
		code, stdout, stderr := weft(t, strings.Split(strings.TrimSpace(string(words)), "\n")...)
		require.Zero(t, code, stderr)
		require.Contains(t, stdout, "job j at "+at)
	}
}

func TestDoctorSaysWhatIsMissingWhereThereIsNoJob(t *testing.T) {
	url := job(t, 1, 0)
	code, _, stderr := weft(t, "doctor", "--init", url)
	require.Equal(t, cli.CodeFailed, code)
	require.Contains(t, stderr, "there is a store at "+strings.TrimPrefix(url, "tcp://")+", but no worker has joined there")
	code, _, stderr = weft(t, "doctor", "--init", "tcp://127.0.0.1:1", "--timeout", "50ms")
	require.Equal(t, cli.CodeFailed, code)
	require.Contains(t, stderr, "no store at 127.0.0.1:1: nothing listens at 127.0.0.1:1, or not yet. Is the job running, and is this its store")
}
