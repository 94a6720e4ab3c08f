package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/internal/secret/secrettest"
	"github.com/weft-project/weft/store"
)

// crew is the agents of a job of several nodes, in this process.
type crew struct {
	t    *testing.T
	spec Spec
	out  *proctest.Output
	runs sync.WaitGroup

	mu   sync.Mutex
	ends map[int]error // by node
}

func newCrew(t *testing.T, part string, workers int, change func(*Spec)) *crew {
	spec := job(t, part, workers)
	spec.Endpoint = proctest.Address()
	spec.RunID = "crew"
	spec.LastCall, spec.JoinTimeout = time.Second, 30*time.Second
	out := &proctest.Output{}
	spec.Stdout, spec.Stderr = out, out
	change(&spec)
	return &crew{t: t, spec: spec, out: out, ends: map[int]error{}}
}

// start starts an agent and returns what ends it.
func (w *crew) start(n int) context.CancelCauseFunc {
	c, cancel := context.WithCancelCause(w.t.Context())
	spec := w.spec
	w.runs.Go(func() {
		_, err := Run(c, spec)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ends[n] = err
	})
	return cancel
}

// pids are the processes that have said that they are there, by rank in their place, the last of
// each.
func (w *crew) pids() map[int]int {
	out := map[int]int{}
	for _, m := range regexp.MustCompile(`(?m)^\[(\d+)\] here (\d+)$`).FindAllStringSubmatch(w.out.String(), -1) {
		rank, _ := strconv.Atoi(m[1])
		out[rank], _ = strconv.Atoi(m[2])
	}
	return out
}

func TestWorkersOfSeveralNodesGetRanksOfOneWorldAndOneStore(t *testing.T) {
	t.Parallel()
	w := newCrew(t, "meet", 2, func(s *Spec) { s.MinNodes = 3 })
	for n := range 3 {
		w.start(n)
	}
	w.runs.Wait()
	require.Equal(t, map[int]error{0: nil, 1: nil, 2: nil}, w.ends, w.out.String())
	for rank := range 6 {
		require.Contains(t, w.out.String(), fmt.Sprintf("[%d] met 6\n", rank))
	}
}

func TestAWorkerThatFailsIsReplacedInItsPlaceAndTheOthersKeepTheirProcesses(t *testing.T) {
	t.Parallel()
	w := newCrew(t, "stay", 2, func(s *Spec) { s.MinNodes, s.MaxRestarts = 2, 1 })
	ends := []context.CancelCauseFunc{w.start(0), w.start(1)}
	w.out.Await(t, "] here ", 4)
	before := w.pids()
	require.Len(t, before, 4)
	require.NoError(t, syscall.Kill(before[2], syscall.SIGKILL))
	w.out.Await(t, "] here ", 5)
	after := w.pids()
	require.NotEqual(t, before[2], after[2])
	after[2] = before[2]
	require.Equal(t, before, after)
	w.out.Await(t, "[2] attempt 0, restart 1", 1) // the group it comes into was not started again
	w.out.Await(t, "was killed by signal 9 (SIGKILL)\n", 1)
	require.Eventually(t, func() bool {
		return regexp.MustCompile(`(?m)^weft: \d\d:\d\d:\d\d round 0: starting it again, restart 1 of 1: worker 2 of \S+ failed: worker2 \(rank 2, pid \d+\) was killed by signal 9 \(SIGKILL\)$`).
			MatchString(w.out.String())
	}, 20*time.Second, 5*time.Millisecond)

	require.NoError(t, syscall.Kill(w.pids()[2], syscall.SIGKILL)) // the job has no restart left
	w.runs.Wait()
	var failure *WorkerError
	own, other := w.ends[0], w.ends[1]
	if !errors.As(own, &failure) {
		own, other = other, own
	}
	require.ErrorAs(t, own, &failure)
	require.Equal(t, 2, failure.Rank)
	require.Equal(t, int(syscall.SIGKILL), failure.Signal)
	require.ErrorIs(t, other, rdzv.ErrClosed)
	require.ErrorContains(t, other, "worker 2 of ")
	require.ErrorContains(t, other, "the only restart is spent")
	for _, end := range ends {
		end(nil)
	}
}

func TestTheGroupPolicyStartsAllWorkersOfAllNodesAgain(t *testing.T) {
	t.Parallel()
	w := newCrew(t, "stay", 2, func(s *Spec) { s.MinNodes, s.MaxRestarts, s.Policy = 2, 1, rdzv.RestartGroup })
	ends := []context.CancelCauseFunc{w.start(0), w.start(1)}
	w.out.Await(t, "] here ", 4)
	before := w.pids()
	require.NoError(t, syscall.Kill(before[3], syscall.SIGKILL))
	w.out.Await(t, "] here ", 8)
	for rank, pid := range w.pids() {
		require.NotEqual(t, before[rank], pid)
		w.out.Await(t, fmt.Sprintf("[%d] attempt 1, restart 1", rank), 1)
	}
	for _, end := range ends {
		end(errTestStop)
	}
	w.runs.Wait()
	for _, err := range w.ends {
		require.ErrorIs(t, err, errTestStop)
	}
}

func TestANodeThatIsEndedLeavesWithTheCause(t *testing.T) {
	t.Parallel()
	w := newCrew(t, "stay", 1, func(s *Spec) { s.MinNodes, s.MaxNodes = 1, 2 })
	stop := w.serve()
	defer stop()
	ends := []context.CancelCauseFunc{w.start(0), w.start(1)}
	w.out.Await(t, "] here ", 2)
	st, err := store.Dial(t.Context(), store.ClientConfig{Addr: w.spec.Endpoint})
	require.NoError(t, err)
	defer st.Close()
	ends[0](errTestStop)
	require.Eventually(t, func() bool {
		v, err := rdzv.Look(t.Context(), RendezvousOf(w.spec.RunID, st))
		return err == nil && len(v.Ended) == 1 && v.Ended[0].Why == errTestStop.Error()
	}, 20*time.Second, 50*time.Millisecond)
	ends[1](errTestStop)
	w.runs.Wait()
}

func TestANodeWithAnotherTokenOrOtherSettingsIsRefusedAndToldWhich(t *testing.T) {
	t.Parallel()
	w := newCrew(t, "stay", 1, func(s *Spec) { s.MinNodes, s.MaxNodes, s.Token = 1, 2, secrettest.Token("job") })
	host := w.start(0)
	w.out.Await(t, "] here ", 1)
	w.spec.Token = secrettest.Token("another job")
	w.start(1)
	w.spec.Token, w.spec.MaxRestarts = secrettest.Token("job"), 3
	w.start(2)
	require.Eventually(t, func() bool { w.mu.Lock(); defer w.mu.Unlock(); return len(w.ends) == 2 }, 20*time.Second, 5*time.Millisecond)
	host(errTestStop)
	w.runs.Wait()
	for n, want := range map[int]string{1: "token is not the job's", 2: "has max-restarts=0, and this node max-restarts=3;"} {
		require.ErrorIs(t, w.ends[n], rdzv.ErrRefused)
		require.ErrorContains(t, w.ends[n], want)
		require.ErrorContains(t, w.ends[n], "start all nodes with the same")
	}
}

func TestANodeWhoseRendezvousIsGoneSaysSoAndCanBeStopped(t *testing.T) {
	t.Parallel()
	w := newCrew(t, "stay", 1, func(s *Spec) { s.MinNodes, s.Silence = 2, 3*time.Second })
	server, err := store.Serve(store.ServerConfig{Addr: w.spec.Endpoint})
	require.NoError(t, err)
	ends := []context.CancelCauseFunc{w.start(0), w.start(1)}
	w.out.Await(t, "] here ", 2)
	require.NoError(t, server.Close())
	w.out.Await(t, "weft: the machine at "+w.spec.Endpoint+", which hosts the rendezvous, is out of reach (", 1)
	w.out.Await(t, "); if it does not come back, this node gives up in 1m0s\n", 1)
	for _, end := range ends {
		end(errTestStop)
	}
	w.runs.Wait()
	for _, err := range w.ends {
		require.ErrorIs(t, err, errTestStop)
	}
}

func TestARendezvousThatCannotBeOpenedIsAnErrorThatNamesIt(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var runs sync.WaitGroup
	runs.Go(func() { // what hangs up on everybody is no store
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			nc.Close()
		}
	})
	spec := job(t, "stay", 1)
	spec.MinNodes, spec.Endpoint, spec.JoinTimeout = 2, l.Addr().String(), time.Second
	_, err = run(t, t.Context(), spec)
	require.ErrorContains(t, err, "the rendezvous at "+spec.Endpoint)
	require.NoError(t, l.Close())
	runs.Wait()
}

func TestANodeThatIsStoppedLeavesAndTheOthersGoOnAndANewOneComesIn(t *testing.T) {
	t.Parallel()
	w := newCrew(t, "stay", 1, func(s *Spec) { s.MinNodes, s.MaxNodes = 1, 3 })
	host := w.start(0) // it has the store
	w.out.Await(t, "] here ", 1)
	second := w.start(1)
	w.out.Await(t, "] here ", 2)
	before := w.pids()
	second(errTestStop)
	w.out.Await(t, "[0] place 0 of 1", 2)
	third := w.start(2)
	w.out.Await(t, "] here ", 3)
	require.Equal(t, before[0], w.pids()[0], "who runs goes on")
	w.mu.Lock()
	require.ErrorIs(t, w.ends[1], errTestStop)
	w.mu.Unlock()
	third(errTestStop)
	host(errTestStop)
	w.runs.Wait()
}

func TestANodeDoesNotWaitForTheWorkersStoreOfARoundThatIsOver(t *testing.T) {
	t.Parallel()
	w := newCrew(t, "stay", 1, func(s *Spec) { s.MinNodes, s.MaxNodes, s.LastCall = 1, 2, 10*time.Second })
	stop := w.serve()
	defer stop()
	client, err := store.Dial(t.Context(), store.ClientConfig{Addr: w.spec.Endpoint})
	require.NoError(t, err)
	defer client.Close()
	// A node gets rank 0, hosts no store for the workers, and goes.
	spec, err := w.spec.populate().MakeSecrets()
	require.NoError(t, err)
	first, err := rdzv.Open(t.Context(), store.NewPrefix("rdzv/crew", client), spec.rendezvous(),
		rdzv.Node{ID: "first", Addr: "127.0.0.1", Slots: 1, Role: "default", Want: 1}, nil)
	require.NoError(t, err)
	w.spec.WantRank = 2
	end := w.start(0)
	placed := <-first.News
	require.Equal(t, 0, placed.Placement.Rank)
	require.Equal(t, 2, placed.Placement.Nodes)
	require.NoError(t, first.Leave(t.Context(), ""))
	w.out.Await(t, "[0] place 0 of 1\n", 1)
	end(errTestStop)
	w.runs.Wait()
}
