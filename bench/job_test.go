package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/lenient"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

// The process that tests is worker0 and hosts the store. worker1 is the same binary, started again
// with the store's address and the job's token in its environment; it serves until its standard
// input ends, be it because worker0 died.
const (
	storeVariable   = "WEFT_BENCH_STORE"
	laneVariable    = "WEFT_BENCH_LANE"
	profileVariable = "WEFT_BENCH_PEER_PROFILE" // a file for worker1's CPU profile
	tokenVariable   = "WEFT_TOKEN"
)

// patience bounds the beginning and the end of a job.
const patience = 20 * time.Second

func TestMain(m *testing.M) {
	for _, name := range []string{"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"} {
		if os.Getenv(name) == "" {
			_ = os.Setenv(name, "1") // two processes share the cores
		}
	}
	if lenient.Crowded(2, runtime.NumCPU()) { // as weft run starts workers
		lenient.Become()
	}
	addr := os.Getenv(storeVariable)
	if addr == "" {
		os.Exit(m.Run())
	}
	if err := serve(addr, os.Getenv(laneVariable)); err != nil {
		fmt.Fprintln(os.Stderr, "worker1:", err)
		os.Exit(1)
	}
}

// job is worker0 and what ends with it.
type job struct {
	worker *rpc.Worker
	net    *watched
	pid    int           // of worker1
	ended  chan struct{} // closed when worker1 has ended and is reaped
}

// startJob starts worker1 and joins it. The end of the test ends both, and fails where that did not
// go well.
func startJob(t testing.TB, l string) *job {
	t.Helper()
	server, err := store.Serve(store.ServerConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	life, kill := context.WithCancel(context.Background())
	t.Cleanup(kill)
	self, err := os.Executable()
	require.NoError(t, err)
	token := transport.NewToken()
	peer := exec.CommandContext(life, self)
	peer.Env = append(os.Environ(), storeVariable+"="+server.Addr(), laneVariable+"="+l, tokenVariable+"="+token,
		"GORACE=atexit_sleep_ms=0") // the race detector makes every exit take a second otherwise
	peer.Stdout, peer.Stderr = os.Stderr, os.Stderr
	hold, err := peer.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, peer.Start())
	joining, giveUp := context.WithTimeoutCause(life, patience, errors.New("worker1 does not come"))
	defer giveUp()
	j := &job{pid: peer.Process.Pid, ended: make(chan struct{})}
	go func() {
		defer close(j.ended)
		defer giveUp() // nobody is there to join
		if err := peer.Wait(); err != nil {
			t.Errorf("worker1 ended badly: %v", err)
		}
	}()
	t.Cleanup(func() { <-j.ended }) // before the test is over, also where joining fails
	t.Cleanup(func() { time.AfterFunc(patience, kill); _ = hold.Close() })
	st, err := store.Dial(joining, store.ClientConfig{Addr: server.Addr()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = st.Close() })
	j.net, err = watch(token, l)
	require.NoError(t, err)
	j.worker, err = rpc.Join(joining, rpc.Config{Store: st, Rank: 0, WorldSize: 2, Network: j.net, Functions: serves()})
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = hold.Close() // worker1 comes to leave too
		c, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, j.worker.Leave(c))
	})
	return j
}

// serve is worker1.
func serve(addr, lane string) error {
	if path := os.Getenv(profileVariable); path != "" {
		f, err := os.Create(path)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	net, err := watch(os.Getenv(tokenVariable), lane)
	if err != nil {
		return err
	}
	c, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	w, err := rpc.Join(c, rpc.Config{Init: "tcp://" + addr + "?rank=1&world_size=2", Network: net, Functions: serves()})
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	c, cancel = context.WithTimeout(context.Background(), patience)
	defer cancel()
	return w.Leave(c)
}

func serves() []rpc.Function { return append(optim.Functions(), functions()...) }

func TestTheOtherProcessIsReapedWhenItsJobEnds(t *testing.T) {
	var j *job
	t.Run("job", func(t *testing.T) {
		j = startJob(t, transport.LaneQUIC)
		_, err := empty.Call(j.worker.Context(t.Context()), peer, struct{}{})
		require.NoError(t, err)
	})
	select {
	case <-j.ended:
	default:
		require.Fail(t, "nobody waited for the other process")
	}
	p, err := os.FindProcess(j.pid)
	if err == nil {
		err = p.Signal(syscall.Signal(0))
	}
	require.ErrorIs(t, err, os.ErrProcessDone)
}
