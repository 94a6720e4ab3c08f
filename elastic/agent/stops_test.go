package agent

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/store"
)

// stubborn is a job of two nodes with a worker each, which ignore SIGTERM; rank 1 has left a
// process that holds the fifo.
func stubborn(t *testing.T, change func(*Spec)) (w *crew, released func() error, end func()) {
	w = newCrew(t, "stubborn", 1, func(s *Spec) {
		s.MinNodes, s.Grace = 2, 100*time.Millisecond
		released = heldFifo(t, fifo(t, s))
		change(s)
	})
	first, second := w.start(0), w.start(1)
	w.out.Await(t, "] here ", 2)
	return w, released, func() {
		first(errTestStop)
		second(errTestStop)
		w.runs.Wait()
	}
}

func gone(t *testing.T, pids map[int]int) {
	t.Helper()
	for rank, pid := range pids {
		require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, "rank %d", rank)
	}
}

func TestARestartOfTheGroupKillsOnEveryNodeWhatIgnoresSIGTERMAndWhatItHasStarted(t *testing.T) {
	t.Parallel()
	w, released, end := stubborn(t, func(s *Spec) { s.MaxRestarts, s.Policy = 1, rdzv.RestartGroup })
	before := w.pids()
	require.NoError(t, syscall.Kill(before[0], syscall.SIGKILL))
	w.out.Await(t, "] here ", 4)
	require.Contains(t, w.out.String(), "1 worker did not end within 100ms of SIGTERM; killing\n")
	require.NoError(t, released(), "what the first attempt left still runs in the second")
	gone(t, before)
	end()
	gone(t, w.pids())
}

func TestTheEndOfAJobKillsOnEveryNodeWhatIgnoresSIGTERMAndWhatItHasStarted(t *testing.T) {
	t.Parallel()
	w, released, end := stubborn(t, func(*Spec) {})
	require.NoError(t, syscall.Kill(w.pids()[0], syscall.SIGKILL))
	w.runs.Wait()
	require.NoError(t, released())
	gone(t, w.pids())
	var failure *WorkerError
	require.True(t, errors.As(w.ends[0], &failure) != errors.As(w.ends[1], &failure), "one node has the worker, the other hears of it: %v", w.ends)
	end()
}

func TestWhatAFailedWorkerHasStartedIsKilledBeforeTheWorkerIsReplaced(t *testing.T) {
	t.Parallel()
	w, released, end := stubborn(t, func(s *Spec) { s.MaxRestarts = 1 })
	before := w.pids()
	require.NoError(t, syscall.Kill(before[1], syscall.SIGKILL))
	w.out.Await(t, "] here ", 3)
	require.NoError(t, released())
	require.Equal(t, before[0], w.pids()[0])
	end()
	gone(t, w.pids())
}

func TestTheLinesOfAWorkerHaveTheRankThatItHas(t *testing.T) {
	t.Parallel()
	w := newCrew(t, "stay", 1, func(s *Spec) { s.MinNodes, s.MaxNodes = 1, 3; s.LastCall = 5 * time.Second })
	server, err := store.Serve(store.ServerConfig{Addr: w.spec.Endpoint})
	require.NoError(t, err)
	defer server.Close()
	w.spec.WantRank = 1
	ends := []func(error){w.start(0)}
	w.spec.WantRank = 2
	ends = append(ends, w.start(1))
	w.spec.WantRank = 3
	ends = append(ends, w.start(2))
	w.out.Await(t, "of 3\n", 3)
	ends[1](errTestStop) // rank 2 is now one too high
	w.out.Await(t, "[0] place 0 of 2\n", 1)
	w.out.Await(t, "[1] place 1 of 2\n", 1)
	require.NotContains(t, w.out.String(), "[2] place 1")
	ends[0](errTestStop)
	ends[2](errTestStop)
	w.runs.Wait()
}
