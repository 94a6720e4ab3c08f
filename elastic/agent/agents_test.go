package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/store"
)

// aNode is an agent of a crew in a process of its own.
type aNode struct {
	Endpoint, RunID    string
	MinNodes, MaxNodes int
	Silence, LastCall  time.Duration
}

func (n aNode) spec() Spec {
	return Spec{Endpoint: n.Endpoint, RunID: n.RunID, MinNodes: n.MinNodes, MaxNodes: n.MaxNodes, Silence: n.Silence, LastCall: n.LastCall,
		Program: os.Args[0], NprocPerNode: 1, Stdout: os.Stdout, Stderr: os.Stderr, JoinTimeout: 30 * time.Second}
}

// process starts an agent of the crew as a process, whose worker plays the crew's part.
func (w *crew) process(part string) *exec.Cmd {
	s := w.spec
	b, err := json.Marshal(aNode{s.Endpoint, s.RunID, s.MinNodes, s.MaxNodes, s.Silence, s.LastCall})
	require.NoError(w.t, err)
	cmd := exec.Command(s.Program)
	cmd.Env = append(s.Env, "WEFT_TEST_WORKER=node", "WEFT_TEST_NODE="+string(b), "WEFT_TEST_PART="+part)
	cmd.Stdout, cmd.Stderr = w.out, w.out
	require.NoError(w.t, cmd.Start())
	return cmd
}

// serve serves the crew's rendezvous, so that it outlives every agent.
func (w *crew) serve() (stop func()) {
	server, err := store.Serve(store.ServerConfig{Addr: w.spec.Endpoint})
	require.NoError(w.t, err)
	return func() { require.NoError(w.t, server.Close()) }
}

func TestTheWorkersOfAnyNodesAddUpTheirRanks(t *testing.T) {
	t.Parallel()
	for _, nodes := range [][]int{{2}, {4, 4}, {1, 2, 3}} {
		w := newCrew(t, "sum", 1, func(s *Spec) { s.MinNodes = len(nodes) })
		world := 0
		for n, workers := range nodes {
			world += workers
			w.spec.NprocPerNode = workers
			w.start(n)
		}
		w.runs.Wait()
		for n, err := range w.ends {
			require.NoError(t, err, "node %d of %v: %s", n, nodes, w.out)
		}
		for rank := range world {
			require.Contains(t, w.out.String(), fmt.Sprintf("[%d] sum %d\n", rank, world*(world-1)/2))
		}
	}
}

func TestTheWorkersStoreIsAtTheAddressThatTheSpecNames(t *testing.T) {
	t.Parallel()
	host := proctest.Host()
	spec := job(t, "environment", 1)
	out := &proctest.Output{}
	spec.Stdout, spec.MasterAddr, spec.MasterPort = out, host, 28555
	result, err := run(t, t.Context(), spec)
	require.NoError(t, err)
	require.Contains(t, out.String(), "MASTER_ADDR="+host+"\n")
	require.Contains(t, out.String(), "MASTER_PORT=28555\n")
	require.Equal(t, 28555, result.MasterPort)

	w := newCrew(t, "environment", 1, func(s *Spec) { s.MinNodes, s.LocalAddr = 2, host })
	w.start(0)
	w.start(1)
	w.runs.Wait()
	require.Equal(t, 2, strings.Count(w.out.String(), "MASTER_ADDR="+host+"\n"), w.out)
}

func TestAnAgentThatIsKilledIsReplacedByANewOneAndBothFinish(t *testing.T) {
	t.Parallel()
	w := newCrew(t, "finish", 1, func(s *Spec) {
		s.MinNodes, s.Silence = 2, 3*time.Second
		s.Env = append(s.Env, "WEFT_TEST_WORLD=2")
	})
	stop := w.serve()
	defer stop()
	w.start(0)
	agent := w.process("finish")
	w.out.Await(t, "] here ", 2)
	require.NoError(t, agent.Process.Kill())
	require.Error(t, agent.Wait())
	w.start(1)
	w.runs.Wait()
	require.Equal(t, map[int]error{0: nil, 1: nil}, w.ends, w.out)
	require.Equal(t, 2, strings.Count(w.out.String(), "] done\n"), w.out)
	gone(t, w.pids())
}

func TestAfterTheAgentThatHostsTheRendezvousIsKilledANewOneHostsItAndBothFinish(t *testing.T) {
	t.Parallel()
	w := newCrew(t, "finish", 1, func(s *Spec) {
		s.MinNodes, s.Silence = 2, 3*time.Second
		s.Env = append(s.Env, "WEFT_TEST_WORLD=2")
	})
	host := w.process("finish")
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", w.spec.Endpoint)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, time.Minute, 5*time.Millisecond)
	w.start(0)
	w.out.Await(t, "] here ", 2)
	require.NoError(t, host.Process.Kill())
	require.Error(t, host.Wait())
	w.start(1)
	w.runs.Wait()
	require.Equal(t, map[int]error{0: nil, 1: nil}, w.ends, w.out)
	require.Equal(t, 2, strings.Count(w.out.String(), "] done\n"), w.out)
	gone(t, w.pids())
}

func TestAnAgentThatIsKilledIsMissedAndTheOtherOneFinishesAlone(t *testing.T) {
	t.Parallel()
	w := newCrew(t, "finish", 1, func(s *Spec) {
		s.MinNodes, s.MaxNodes, s.Silence = 1, 2, 3*time.Second
		s.Env = append(s.Env, "WEFT_TEST_WORLD=1")
	})
	stop := w.serve()
	defer stop()
	agent := w.process("finish")
	w.start(0)
	w.out.Await(t, "] here ", 2)
	require.NoError(t, agent.Process.Kill())
	require.Error(t, agent.Wait())
	w.runs.Wait()
	require.Equal(t, map[int]error{0: nil}, w.ends, w.out)
	require.Equal(t, 1, strings.Count(w.out.String(), "] done\n"), w.out)
	require.Regexp(t, `(?m)^weft: \d\d:\d\d:\d\d round 0: node \S+ is lost: no word from it for 3s$`, w.out.String())
	gone(t, w.pids())
}

func TestTheJobIsOverWhenItsLastWorkerIsDoneHoweverLateThatIs(t *testing.T) {
	t.Parallel()
	var path string
	w := newCrew(t, "drift", 1, func(s *Spec) { s.MinNodes = 2; path = fifo(t, s) })
	w.start(0)
	w.start(1)
	w.out.Await(t, "] here ", 2)
	early := w.pids()[0]
	require.Eventually(t, func() bool { return errors.Is(syscall.Kill(early, 0), syscall.ESRCH) }, 20*time.Second, 5*time.Millisecond)
	w.mu.Lock()
	require.Empty(t, w.ends, "the other node's worker still runs")
	w.mu.Unlock()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	w.runs.Wait()
	require.Equal(t, map[int]error{0: nil, 1: nil}, w.ends, w.out)
}

func TestAWorkerThatKillsItselfOnceIsStartedAgainAndTheJobSucceeds(t *testing.T) {
	t.Parallel()
	for _, policy := range []rdzv.Policy{rdzv.ReplaceWorker, rdzv.RestartGroup} {
		spec := job(t, "die once", 2)
		spec.MaxRestarts, spec.Policy = 3, policy
		result, err := run(t, t.Context(), spec)
		require.NoError(t, err)
		require.Equal(t, 1, result.Restarts)
	}
}

func TestWorkersThatAlwaysFailSpendAllRestartsOfTheJobAndThenEndIt(t *testing.T) {
	t.Parallel()
	for _, policy := range []rdzv.Policy{rdzv.ReplaceWorker, rdzv.RestartGroup} {
		spec := job(t, "bipolar", 4)
		spec.MaxRestarts, spec.Policy = 2, policy
		result, err := run(t, t.Context(), spec)
		var failure *WorkerError
		require.ErrorAs(t, err, &failure)
		require.Equal(t, 1, failure.Rank%2, "the odd ones fail")
		require.Equal(t, 1, failure.Code)
		require.Equal(t, 2, result.Restarts)
	}
}

func TestANodeThatComesRestartsTheGroupWhereThePolicySaysSoAndCostsNoRestart(t *testing.T) {
	t.Parallel()
	w := newCrew(t, "stay", 1, func(s *Spec) {
		s.MinNodes, s.MaxNodes, s.LastCall, s.MaxRestarts, s.Policy = 1, 2, -1, 1, rdzv.RestartGroup
	})
	ends := []context.CancelCauseFunc{w.start(0)}
	w.out.Await(t, "] here ", 1)
	before := w.pids()
	ends = append(ends, w.start(1))
	w.out.Await(t, "] attempt 0, restart 0\n", 3)
	require.NotEqual(t, before[0], w.pids()[0])
	for _, end := range ends {
		end(errTestStop)
	}
	w.runs.Wait()
}

func TestASpareNodeEndsWellWithItsJobAndHasStartedNothing(t *testing.T) {
	t.Parallel()
	var path string
	w := newCrew(t, "drift", 2, func(s *Spec) { s.MinNodes, s.MaxNodes = 1, 1; path = fifo(t, s) })
	w.start(0)
	w.out.Await(t, "] here ", 2)
	w.start(1)
	w.out.Await(t, "weft: this node is redundant for now: the job has as many as it may", 1)
	w.out.Await(t, "weft: this node is redundant: 1 of 1 nodes take part", 1) // it has been told more than once by now
	require.Equal(t, 1, strings.Count(w.out.String(), "redundant for now"), w.out)
	require.NotContains(t, w.out.String(), "waits for the next round")
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	w.runs.Wait()
	require.Equal(t, map[int]error{0: nil, 1: nil}, w.ends, w.out)
	require.Equal(t, 2, strings.Count(w.out.String(), "] here "), w.out)
}

// agentParts are what the workers of these tests, and their agents, play.
var agentParts = map[string]func(){
	// An agent of a job of several nodes.
	"node": func() {
		var n aNode
		err := json.Unmarshal([]byte(os.Getenv("WEFT_TEST_NODE")), &n)
		_ = os.Setenv("WEFT_TEST_WORKER", os.Getenv("WEFT_TEST_PART"))
		if err == nil {
			_, err = Run(context.Background(), n.spec())
		}
		fmt.Println("the agent ended:", err)
	},
	// The workers add up their ranks in their store.
	"sum": func() {
		c := context.Background()
		st, err := store.Open(c, "env://", store.OpenConfig{NoWait: true})
		world, _ := strconv.Atoi(os.Getenv("WORLD_SIZE"))
		rank, _ := strconv.Atoi(os.Getenv("RANK"))
		sum := int64(0)
		if err == nil {
			_, err = st.Store.Add(c, "sum", int64(rank))
		}
		if err == nil {
			err = st.Store.Barrier(c, "all", world)
		}
		if err == nil {
			sum, err = st.Store.Add(c, "sum", 0)
		}
		if err == nil { // rank 0's node serves them all
			err = st.Store.Barrier(c, "read", world)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println("sum", sum)
	},
	// The worker ends in a later round than the first, when the world has the size that the test
	// says.
	"finish": func() {
		m, err := elastic.Join(context.Background())
		fmt.Println("here", os.Getpid())
		for err == nil {
			p := m.Place()
			if p.Round > 0 && strconv.Itoa(p.World) == os.Getenv("WEFT_TEST_WORLD") {
				fmt.Println("done")
				return
			}
			<-p.Over
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	},
	// The worker has done its share of a world of one at once, and takes its time to end. In a world
	// of two it waits for the other one.
	"late": func() {
		c := context.Background()
		m, err := elastic.Join(c)
		world := 0
		if err == nil {
			err = m.Each(c, func(c context.Context, e *elastic.Epoch) error {
				if world = e.World; world == 1 {
					return nil
				}
				return e.Store.Barrier(c, "all", world)
			})
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println("has worked in a world of", world)
		if world == 1 {
			awaitGo()
		}
	},
	"plain": plain,
	"drift": func() {
		fmt.Println("here", os.Getpid())
		if os.Getenv("RANK") == "1" {
			awaitGo()
		}
	},
	"die once": func() {
		if os.Getenv("RANK") == "1" && os.Getenv(elastic.RestartsVariable) == "0" {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	},
	"bipolar": func() {
		rank, _ := strconv.Atoi(os.Getenv("RANK"))
		os.Exit(rank % 2)
	},
}
