package agent

import (
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic/rdzv"
)

const deafness = " does not hear that the workers are others now"

// replaced replaces worker 1 of two until the test has seen enough, and returns what was said.
func replaced(t *testing.T, part, ready string, enough func(said string) bool) string {
	w := newCrew(t, part, 2, func(s *Spec) { s.MaxRestarts, s.patience = 1<<20, time.Millisecond })
	end := w.start(0)
	w.out.Await(t, ready, 1)
	for n := 0; ; n++ {
		w.out.Await(t, "] here ", 2+n)
		if enough(w.out.String()) {
			break
		}
		require.NoError(t, syscall.Kill(w.pids()[1], syscall.SIGKILL))
	}
	end(errTestStop)
	w.runs.Wait()
	require.ErrorIs(t, w.ends[0], errTestStop)
	return w.out.String()
}

func TestAWorkerThatNeverAsksForItsPlaceIsNamedOnceWhenAnotherIsReplaced(t *testing.T) {
	t.Parallel()
	more := 3
	said := replaced(t, "deaf", "[0] here ", func(said string) bool {
		if strings.Contains(said, deafness) {
			more--
		}
		return more == 0
	})
	require.Equal(t, 1, strings.Count(said, deafness), said)
	require.Contains(t, said, "has not called elastic.Join; for a program that cannot, there is --restart-policy group")
}

func TestAWorkerThatAskedForItsPlaceIsNotWarnedOf(t *testing.T) {
	t.Parallel()
	said := replaced(t, "stay", "[0] place 0 of 2\n", func(said string) bool { // the worker has heard of three
		return strings.Count(said, "[0] place 0 of 2\n") > 3
	})
	require.NotRegexp(t, "worker0 .*"+deafness, said) // the others had a millisecond for it
}

func TestAWorkerThatIsYoungWhenAnotherIsReplacedIsNotWarnedOf(t *testing.T) {
	a := newAgent(Spec{NprocPerNode: 1, Stdout: io.Discard, Stderr: io.Discard}.populate())
	a.node.place, a.meeting = &rdzv.Placement{World: 1}, &meeting{}
	for old, age := range map[bool]time.Duration{false: 0, true: time.Hour} {
		p := unborn(0)
		r, told, err := os.Pipe()
		require.NoError(t, err)
		p.told, p.Started = told, time.Now().Add(-age)
		a.procs[0] = p
		for range 2 {
			require.True(t, p.moved.IsZero())
			a.epochs.now++
			a.sendPlace(0)
		}
		require.Equal(t, old, !p.moved.IsZero())
		require.NoError(t, told.Close())
		require.NoError(t, r.Close())
	}
}

func TestAWorkerThatEndsWellBeforeItReadsItsPlaceStartsAgainAndNobodyWaitsForItInVain(t *testing.T) {
	t.Parallel()
	var path string
	w := newCrew(t, "late", 1, func(s *Spec) { s.MinNodes, s.MaxNodes, s.LastCall = 1, 2, -1; path = fifo(t, s) })
	w.start(0)
	w.out.Await(t, "has worked in a world of 1\n", 1)
	w.start(1)
	w.out.Await(t, "2 nodes, 2 workers; this is node 0\n", 1)
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	w.runs.Wait()
	require.Equal(t, map[int]error{0: nil, 1: nil}, w.ends, w.out)
	require.Regexp(t, `(?m)^weft: worker0 \(rank 0, pid \d+\) exited with code 0, and had not heard of its place in round 1: starting it again$`, w.out.String())
	require.Equal(t, 2, strings.Count(w.out.String(), "has worked in a world of 2\n"), w.out)
}

func TestAProgramThatEndsBeforeItsAgentCanTellItAPlaceIsNotStartedAgain(t *testing.T) {
	a := newAgent(Spec{NprocPerNode: 1, Stdout: io.Discard, Stderr: io.Discard}.populate())
	a.node.place, a.meeting = &rdzv.Placement{World: 1}, &meeting{}
	for _, reads := range []int{0, 1} {
		r, told, err := os.Pipe()
		require.NoError(t, err)
		a.procs[0] = unborn(0)
		a.procs[0].told = told
		for n := range 3 {
			if n == reads {
				require.NoError(t, r.Close())
			}
			a.epochs.now++
			a.sendPlace(0)
			if n < reads {
				_, err = r.Read(make([]byte, a.procs[0].said))
				require.NoError(t, err)
			}
		}
		require.Equal(t, reads > 0, a.procs[0].behind())
		require.NoError(t, told.Close())
	}
}

func TestAJobThatFailsWarnsOfNobody(t *testing.T) {
	t.Parallel()
	w := newCrew(t, "deaf", 2, func(s *Spec) { s.patience = time.Nanosecond })
	w.start(0)
	w.out.Await(t, "] here ", 2)
	require.NoError(t, syscall.Kill(w.pids()[1], syscall.SIGKILL))
	w.runs.Wait()
	require.Error(t, w.ends[0])
	require.NotContains(t, w.out.String(), "elastic.Join")
}
