//go:build netns && linux

package netns

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/transport"
)

// program is one that a host runs, with its output in a file.
type program struct {
	Args []string
	Env  []string
	Out  string
}

// runProgram returns when the program has ended, with its exit code. It ends it when its own
// process is to end.
func runProgram(c context.Context, p program) (int, error) {
	out, err := os.Create(p.Out)
	if err != nil {
		return 0, err
	}
	defer out.Close()
	cmd := exec.CommandContext(c, p.Args[0], p.Args[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), p.Env...), out, out
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	_ = cmd.Wait() // the code says how it ended
	return cmd.ProcessState.ExitCode(), nil
}

// job is examples/elastic on three hosts, with the store in which their agents meet on a fourth.
type job struct {
	t     *testing.T
	s     *Switch
	dir   string
	ended chan exited
}

type exited struct {
	host, code int
	err        error
}

// outOf is what a host's agent has said.
func (j *job) outOf(host int) string {
	b, err := os.ReadFile(filepath.Join(j.dir, fmt.Sprint("host", host)))
	if err != nil && !os.IsNotExist(err) {
		require.NoError(j.t, err)
	}
	return string(b)
}

// await waits until some host's agent says something, and returns which.
func (j *job) await(what string, hosts ...int) (host int) {
	j.t.Helper()
	find := regexp.MustCompile(what)
	require.Eventually(j.t, func() bool {
		for _, host = range hosts {
			if find.MatchString(j.outOf(host)) {
				return true
			}
		}
		return false
	}, time.Minute, 10*time.Millisecond, "%s:\n%s", what, j)
	return host
}

func (j *job) String() string {
	var b strings.Builder
	for host := range 4 {
		fmt.Fprintf(&b, "host %d:\n%s\n", host, j.outOf(host))
	}
	return b.String()
}

// startJob builds the programs and starts them.
func startJob(t *testing.T) *job {
	j := &job{t: t, s: NewSwitch(1), dir: t.TempDir(), ended: make(chan exited, 4)}
	build := exec.Command("go", "build", "-o", j.dir+"/bin/", "github.com/weft-project/weft/cmd/weft", "github.com/weft-project/weft/examples/elastic")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	weft, store := j.dir+"/bin/weft", hostAddr(3)+":29400"
	env := []string{"WEFT_TOKEN=" + transport.NewToken(), "WEFT_LANES=quic,bulk"}
	var procs [4]*proctest.Proc
	for i := range procs {
		procs[i] = startHost(t, j.s, netip.MustParseAddr(hostAddr(i)))
	}
	t.Cleanup(j.s.Close)
	j.s.Set(Path{Delay: time.Millisecond})
	start := func(host int, args ...string) {
		go func() {
			e := exited{host: host}
			e.err = procs[host].Ask(context.Background(), "run", program{args, env, filepath.Join(j.dir, fmt.Sprint("host", host))}, &e.code)
			j.ended <- e
		}()
	}
	start(3, weft, "store", "serve", "--listen", store, "--tls", "--rdzv-id", "cut")
	j.await("tcp://", 3)
	for host := range 3 {
		start(host, weft, "run", "--nnodes", "1:3", "--rdzv-endpoint", store, "--rdzv-id", "cut", "--rdzv-conf", "last_call_timeout=2,keep_alive_timeout=3",
			"--max-restarts", "9", j.dir+"/bin/elastic", "--epochs", "22", "--plot", "", "--lines", "10", "--pace", "40ms", "--checkpoints", j.dir+"/checkpoints", "--result", j.dir+"/result.json")
	}
	return j
}

// pids are the processes of the workers that have come up on a host.
func (j *job) pids(host int) (pids []int) {
	for _, m := range regexp.MustCompile(`is process (\d+)`).FindAllStringSubmatch(j.outOf(host), -1) {
		pid, err := strconv.Atoi(m[1])
		require.NoError(j.t, err)
		pids = append(pids, pid)
	}
	return pids
}

func TestTrainingGoesOnWhileAHostIsCutOffForTwentySecondsAndThenWithItAgain(t *testing.T) {
	for _, first := range []bool{false, true} {
		t.Run(map[bool]string{false: "one that follows", true: "the one with rank 0"}[first], func(t *testing.T) {
			j := startJob(t)
			off := j.await(`step 200/\d+ .*world 3`, 0, 1, 2)
			if !first {
				off = (off + 1) % 3
			}
			others := []int{(off + 1) % 3, (off + 2) % 3}
			j.s.CutOff(netip.MustParseAddr(hostAddr(off)), true)
			cut := time.Now()
			j.await(`3 nodes became 2.*stood still`, others...)
			t.Logf("the others train %v after the cut", time.Since(cut).Round(10*time.Millisecond))
			time.Sleep(time.Until(cut.Add(20 * time.Second)))
			j.s.CutOff(netip.MustParseAddr(hostAddr(off)), false)
			j.await(`2 nodes became 3.*stood still`, others...)
			t.Logf("it trains with them again %v after the cut ended", time.Since(cut.Add(20*time.Second)).Round(10*time.Millisecond))
			for range 3 {
				e := <-j.ended
				require.NoError(t, e.err)
				require.Zero(t, e.code, "host %d:\n%s", e.host, j)
			}
			for host := range 3 {
				require.Len(t, j.pids(host), 1, "no worker was started again:\n%s", j)
				require.ErrorIs(t, syscall.Kill(j.pids(host)[0], 0), syscall.ESRCH)
			}
			b, err := os.ReadFile(j.dir + "/result.json")
			require.NoError(t, err)
			var result struct{ Accuracy float64 }
			require.NoError(t, json.NewDecoder(bytes.NewReader(b)).Decode(&result))
			t.Logf("accuracy %.4f", result.Accuracy)
			require.Greater(t, result.Accuracy, 0.95)
			for host := range 3 {
				for _, line := range regexp.MustCompile(`.*stood still.*|.*stops: .*|weft: .*`).FindAllString(j.outOf(host), -1) {
					t.Logf("host %d: %s", host, line)
				}
			}
		})
	}
}
