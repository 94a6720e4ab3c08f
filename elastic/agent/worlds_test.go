package agent

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// worlds are the worlds in which workers say that they run, one line each as they start and as they
// stop.
type worlds struct {
	runs map[string]string // world by process
	most int               // that have run at a time
}

// take takes a line, and says so where two workers that run are in two worlds.
func (w *worlds) take(line string) error {
	what, rest, _ := strings.Cut(line, " ")
	pid, world, _ := strings.Cut(rest, " ")
	if what == "stop" {
		delete(w.runs, pid)
		return nil
	}
	for other, there := range w.runs {
		if there != world {
			return fmt.Errorf("process %s starts in %q while %s runs in %q", pid, world, other, there)
		}
	}
	w.runs[pid] = world
	w.most = max(w.most, len(w.runs))
	return nil
}

// inRecord says of the lines of a file whether two workers that ran were in two worlds.
func inRecord(t *testing.T, path string) *worlds {
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	w := &worlds{runs: map[string]string{}}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		require.NoError(t, w.take(lines.Text()))
	}
	return w
}

func TestTwoWorldsAtOnceAreFound(t *testing.T) {
	w := &worlds{runs: map[string]string{}}
	for _, line := range []string{"start 1 4 99", "start 2 4 99", "stop 1", "stop 2", "start 3 6 77"} {
		require.NoError(t, w.take(line))
	}
	require.ErrorContains(t, w.take("start 4 4 99"), `process 4 starts in "4 99" while 3 runs in "6 77"`)
	require.Equal(t, 2, w.most)
}

// plain is a worker that writes down when it runs and in which world, and knows nothing of Join.
// Rank 1 of 4 takes its time to stop.
func plain() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	record := func(what string) {
		f, err := os.OpenFile(os.Getenv("WEFT_TEST_RECORD"), os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = fmt.Fprintf(f, "%s %d %s %s\n", what, os.Getpid(), os.Getenv("WORLD_SIZE"), os.Getenv("MASTER_PORT"))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(95)
		}
	}
	record("start")
	fmt.Println("runs in a world of", os.Getenv("WORLD_SIZE"))
	<-stop
	if os.Getenv("RANK") == "1" && os.Getenv("WORLD_SIZE") == "4" {
		fmt.Println("stops late")
		awaitGo()
	}
	record("stop")
	fmt.Println("stopped")
}

func TestNoTwoWorkersOfAProgramWithoutJoinAreEverInTwoWorldsWhereNodesComeAndGo(t *testing.T) {
	t.Parallel()
	var path string
	record := filepath.Join(t.TempDir(), "record")
	require.NoError(t, os.WriteFile(record, nil, 0o600))
	w := newCrew(t, "plain", 2, func(s *Spec) {
		s.MinNodes, s.MaxNodes = 2, 3
		s.Env = append(s.Env, "WEFT_TEST_RECORD="+record)
		path = fifo(t, s)
	})
	release := func() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	ends := []context.CancelCauseFunc{w.start(0), w.start(1)}
	w.out.Await(t, "runs in a world of 4\n", 4)
	ends = append(ends, w.start(2))
	w.out.Await(t, "] stopped\n", 3) // and the fourth is not ready to
	w.out.Await(t, "] stops late\n", 1)
	release()
	w.out.Await(t, "runs in a world of 6\n", 6)
	ends[2](errTestStop)
	w.out.Await(t, "runs in a world of 4\n", 8)
	ends[0](errTestStop)
	ends[1](errTestStop)
	w.out.Await(t, "] stops late\n", 2)
	release()
	w.runs.Wait()
	for n := range 3 {
		require.ErrorIs(t, w.ends[n], errTestStop)
	}
	require.Equal(t, 6, inRecord(t, record).most)
	require.NotContains(t, w.out.String(), "restart 1 of", "who comes costs no restart")
	for _, line := range []string{"0: node %s joins", "1: starting all workers again: node %s joins; stopping 2 workers", "1: 3 nodes, 6 workers; this is node 1",
		"1: node %s leaves: the test stops the job", "2: starting all workers again: node %s leaves: the test stops the job; stopping 2 workers", "2: 2 nodes, 4 workers; this is node 0"} {
		require.Regexp(t, `(?m)^weft: \d\d:\d\d:\d\d round `+strings.ReplaceAll(line, "%s", `127\.\S+_\d+_\w+`)+"$", w.out.String())
	}
}
