package remains

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/elastic/agent"
	"github.com/weft-project/weft/internal/secret/secrettest"
	"github.com/weft-project/weft/rpc"
)

const (
	roleVariable     = "WEFT_TEST_ROLE"
	endpointVariable = "WEFT_TEST_ENDPOINT"
	patience         = 60 * time.Second
	perAgent         = 2
)

// TestMain makes the test binary an agent or a worker.
func TestMain(m *testing.M) {
	c, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	var err error
	switch os.Getenv(roleVariable) {
	case "":
		os.Exit(m.Run())
	case "agent":
		err = runAgent(c)
	case "worker":
		err = worker(c)
	}
	stop()
	if err != nil && c.Err() == nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runAgent(c context.Context) error {
	_, err := agent.Run(c, agent.Spec{
		Program: os.Args[0], NprocPerNode: perAgent, MinNodes: 2, Endpoint: os.Getenv(endpointVariable), RunID: "remains", MaxRestarts: 9, NoPrefix: true,
		JoinTimeout: patience, Env: append(os.Environ(), roleVariable+"=worker"), Stdout: os.Stdout, Stderr: os.Stderr,
	})
	return err
}

// worker sends every other one a tensor that is large enough for memory that both see, says so, and
// stays.
func worker(c context.Context) error {
	sum := rpc.Define("sum", func(_ context.Context, x *autodiff.Tensor) (*autodiff.Tensor, error) { return autodiff.Sum(x), nil })
	w, err := rpc.Join(c, rpc.Config{Functions: []rpc.Function{sum}})
	if err != nil {
		return err
	}
	for rank := range w.WorldSize() {
		if rank == w.Rank() {
			continue
		}
		x, err := sum.Call(w.Context(c), fmt.Sprint("worker", rank), autodiff.Rand(1024, 1024))
		if err == nil {
			_, err = autodiff.Values[float32](x)
		}
		if err != nil { // a peer may be dying: this one is there all the same
			fmt.Fprintln(os.Stderr, err)
		}
	}
	fmt.Println("here", w.Rank(), os.Getpid())
	<-c.Done()
	return w.Close()
}

// job is two agents with their workers.
type job struct {
	*scene
	agents []*exec.Cmd
	here   chan [2]int // rank and process of a worker
	reads  sync.WaitGroup
}

func start(t *testing.T, s *scene) *job {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	endpoint := l.Addr().String()
	require.NoError(t, l.Close())
	j := &job{scene: s, here: make(chan [2]int, 100)}
	for range 2 {
		cmd := exec.Command(os.Args[0])
		cmd.Dir = s.folder
		cmd.Env = append(os.Environ(), roleVariable+"=agent", endpointVariable+"="+endpoint, markVariable+"="+s.mark, "TMPDIR="+s.folder,
			elastic.TokenVariable+"="+secrettest.Token("job"), "GORACE=atexit_sleep_ms=0")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, in := io.Pipe()
		cmd.Stdout, cmd.Stderr = in, in
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		j.agents = append(j.agents, cmd)
		j.reads.Go(func() {
			for lines := bufio.NewScanner(out); lines.Scan(); {
				var w [2]int
				if _, err := fmt.Sscanf(lines.Text(), "here %d %d", &w[0], &w[1]); err == nil {
					j.here <- w
				} else if testing.Verbose() {
					fmt.Fprintln(os.Stderr, lines.Text())
				}
			}
		})
		t.Cleanup(func() { _ = in.Close() })
	}
	return j
}

func (j *job) next(t *testing.T) [2]int {
	select {
	case w := <-j.here:
		return w
	case <-time.After(patience):
		require.FailNow(t, "no worker says that it is there")
		return [2]int{}
	}
}

func TestNothingIsLeftOfAJobHoweverItsAgentsAndWorkersEnd(t *testing.T) {
	for name, end := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "told to end": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			j := start(t, s)
			workers := map[int]int{}
			for len(workers) < 2*perAgent {
				w := j.next(t)
				workers[w[0]] = w[1]
			}
			require.Len(t, s.processes(t), 2+2*perAgent)
			require.Greater(t, s.note(t), 2*perAgent)

			victim := rand.IntN(len(workers))
			require.NoError(t, syscall.Kill(workers[victim], syscall.SIGKILL))
			for w := j.next(t); w[0] != victim; w = j.next(t) {
			}
			s.note(t)
			for _, i := range rand.Perm(len(j.agents)) {
				require.NoError(t, j.agents[i].Process.Signal(end))
				_ = j.agents[i].Wait() // its workers are gone with it, or about to be; who is left forms anew, or ends
				s.note(t)
			}
			require.Eventually(t, func() bool { return len(s.remains(t)) == 0 }, patience, 50*time.Millisecond, "%v", s.remains(t))
		})
	}
}

func TestWhatIsLeftIsSeen(t *testing.T) {
	s := newScene(t)
	require.Empty(t, s.remains(t))
	cmd := exec.Command("sleep", "60")
	cmd.Env = []string{markVariable + "=" + s.mark}
	want := []string{"process ", "tcp socket", "file: " + s.folder}
	if segment, err := os.CreateTemp("/dev/shm", "weft-test-"); err == nil { // where there is one
		defer os.Remove(segment.Name())
		defer segment.Close()
		cmd.ExtraFiles = []*os.File{segment}
		want = append(want, "shared memory: "+segment.Name())
	}
	require.NoError(t, cmd.Start())
	defer func() {
		require.NoError(t, cmd.Process.Kill())
		require.ErrorAs(t, cmd.Wait(), new(*exec.ExitError))
	}()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	file, err := l.(*net.TCPListener).File()
	require.NoError(t, err)
	defer file.Close()
	inode, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	require.NoError(t, err)
	s.sockets[strings.Trim(inode, "socket:[]")] = true
	require.NoError(t, os.WriteFile(filepath.Join(s.folder, "x"), nil, 0o600))
	s.note(t)
	found := strings.Join(s.remains(t), "\n")
	for _, w := range want {
		require.Contains(t, found, w)
	}
}
