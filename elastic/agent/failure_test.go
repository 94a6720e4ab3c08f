package agent

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic/internal/errorfile"
	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/internal/disttest/proctest"
)

func TestWhatAWorkerSaysInItsErrorFileIsInTheReportAndNothingIsLeftOfIt(t *testing.T) {
	for _, kept := range []bool{false, true} {
		spec := job(t, "explain", 2)
		out := &proctest.Output{}
		spec.Stderr = out
		if kept {
			spec.Logs.Dir = t.TempDir()
		}
		result, err := run(t, t.Context(), spec)
		var failure *WorkerError
		require.ErrorAs(t, err, &failure)
		require.Equal(t, "the loss is NaN\nin step 7", failure.Message)
		require.WithinDuration(t, time.Now(), failure.Time, time.Minute)
		require.True(t, strings.HasSuffix(failure.Report(), " exited with code 4: the loss is NaN"), failure.Report())
		require.Contains(t, failure.Report(), ":\n    the loss is NaN\n    in step 7\n")
		require.Contains(t, out.String(), "exited with code 4: the loss is NaN; stopping 1 worker\n")
		if kept {
			require.Equal(t, filepath.Join(result.Logs, "round_0/attempt_0/1/error.json"), failure.ErrorFile)
			require.FileExists(t, failure.ErrorFile)
			require.Contains(t, failure.Report(), "its error file ("+failure.ErrorFile+")")
		} else {
			require.Empty(t, failure.ErrorFile)
		}
		// Who has started this launcher may have named a file, too.
		file := filepath.Join(t.TempDir(), "error.json")
		require.NoError(t, failure.CopyTo(file))
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		var copied struct {
			Message struct {
				Message   string
				ExtraInfo struct{ Timestamp string }
				ErrorCode int
			}
		}
		require.NoError(t, json.Unmarshal(b, &copied))
		require.Equal(t, failure.Message, copied.Message.Message)
		require.Equal(t, 4, copied.Message.ErrorCode)
		require.NotEmpty(t, copied.Message.ExtraInfo.Timestamp)
	}
}

func FuzzParseReason(f *testing.F) {
	for _, s := range []string{"", "text", `{"message":"m"}`, `{"message":{"message":"m","extraInfo":{"py_callstack":"a\nb","timestamp":"1"}}}`, `{"message":{"message":7}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := errorfile.Parse(b)
		require.LessOrEqual(t, len(r.Message), errorfile.MaxMessage+len("…"))
		require.LessOrEqual(t, len(r.Stack), 40)
		e := newWorkerError([]Failure{{raw: b, Message: r.Message, Stack: r.Stack}})
		require.NotEmpty(t, e.Report())
		file := filepath.Join(t.TempDir(), "error.json")
		require.NoError(t, e.CopyTo(file))
		copied, err := os.ReadFile(file)
		require.NoError(t, err)
		require.True(t, json.Valid(copied))
	})
}

func TestTheFirstFailureInTimeIsToldFirst(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	fail := func(rank int, after time.Duration, said string) Failure {
		return Failure{Exit: Exit{Rank: rank, PID: 100 + rank, Code: 1}, Time: began.Add(after), Message: said}
	}
	killed := fail(0, 1500*time.Millisecond, "")
	killed.Code, killed.Signal, killed.Stderr, killed.LogFile = 137, 9, []string{"a", "b"}, "/logs/stderr.log"
	e := newWorkerError([]Failure{killed, fail(3, 250*time.Millisecond, "bad\nvery"), fail(2, 250*time.Millisecond, "bad too")})
	require.Equal(t, `first failure, at 03:04:05.250: worker2 (rank 2, pid 102) exited with code 1
  its error file:
    bad too
then, 0.000 s later: worker3 (rank 3, pid 103) exited with code 1
  its error file:
    bad
    very
then, 1.250 s later: worker0 (rank 0, pid 100) was killed by signal 9 (SIGKILL)
  its last lines on stderr (/logs/stderr.log):
    a
    b
worker2 (rank 2, pid 102) exited with code 1: bad too`, e.Report())
	same := newWorkerError([]Failure{fail(0, 0, "bad\nvery"), fail(1, 10*time.Millisecond, "bad\nvery"), fail(2, 20*time.Millisecond, "")})
	require.Equal(t, `first failure, at 03:04:05.000: worker0 (rank 0, pid 100) exited with code 1
  its error file:
    bad
    very
then, 0.010 s later: worker1 (rank 1, pid 101) exited with code 1, with the same words
then, 0.020 s later: worker2 (rank 2, pid 102) exited with code 1
worker0 (rank 0, pid 100) exited with code 1: bad`, same.Report())
	require.Equal(t, "worker0 (rank 0, pid 100) exited with code 1: bad", newWorkerError([]Failure{fail(0, 0, "bad")}).Report(), "once")
	for range 9 {
		e.Others = append(e.Others, fail(9, 2*time.Second, ""))
	}
	require.Contains(t, e.Report(), "\nthen 7 more\nworker2")
}

func TestAKilledWorkerIsToBlameForWhoFailsWhileItsThreadsEnd(t *testing.T) {
	fail := func(rank int, after time.Duration, signal syscall.Signal) Failure {
		return Failure{Exit: Exit{Rank: rank, LocalRank: rank, Code: 1, Signal: int(signal)}, Time: at(1).Add(after)}
	}
	for _, c := range []struct {
		second Failure
		blamed int
	}{
		{fail(1, lag-1, syscall.SIGKILL), 1},
		{fail(1, lag-1, syscall.SIGSEGV), 1},
		{fail(1, lag, syscall.SIGKILL), 0},
		{fail(1, lag-1, syscall.SIGTERM), 0}, // the agent's own
		{fail(1, lag-1, 0), 0},
	} {
		first := fail(0, 0, 0)
		e := newWorkerError([]Failure{c.second, first, fail(2, 2*lag, 0)})
		require.Equal(t, c.blamed, e.Rank, "%+v", c.second)
		require.Len(t, e.Others, 2)
		require.NotContains(t, e.Report(), "-0.", "nobody failed before the first")

		a := newAgent(Spec{NprocPerNode: 2}.populate())
		a.failure = newWorkerError([]Failure{first})
		a.overtaken(c.second)
		blamed := new(WorkerError)
		require.ErrorAs(t, a.failure, &blamed)
		require.Equal(t, c.blamed, blamed.Rank, "the job has ended before the second one is seen")

		a.failure, a.node.killed = newWorkerError([]Failure{first}), true
		a.overtaken(c.second)
		require.Equal(t, newWorkerError([]Failure{first}), a.failure, "the agent has killed the rest")
	}
}

func TestTheTimeOfAnErrorFileCountsWhereTheWorkerTookLongToEnd(t *testing.T) {
	began, seen := time.Unix(1000, 0), time.Unix(1060, 0)
	for stamp, want := range map[string]int64{"1005": 1006, "1059": 1060, "1060": 1060, "900": 1060, "2000": 1060, "x": 1060} {
		var f Failure
		f.addErrorFile([]byte(`{"message":{"message":"m","extraInfo":{"timestamp":"`+stamp+`"}}}`), began, seen)
		require.Equal(t, want, f.Time.Unix(), stamp)
	}
}

func TestTheFailureThatEndedTheJobIsToldThoughItsWorkerRunsAgain(t *testing.T) {
	a := newAgent(Spec{NprocPerNode: 3, MaxRestarts: 2}.populate())
	a.failures[1] = Failure{Exit: Exit{Rank: 1, LocalRank: 1, PID: 71, Code: 3}, Time: at(2), Message: "bad", nth: 3}
	a.failures[2] = Failure{Exit: Exit{Rank: 2, LocalRank: 2, PID: 72, Code: 4}, Time: at(1), nth: 2}
	for i := range a.node.workers {
		a.node.workers[i].phase = running
	}
	closed := fmt.Errorf("%w: worker 1 of n failed: %s; all 2 restarts are spent", rdzv.ErrClosed, a.failures[1].brief())
	require.Equal(t, newWorkerError(a.failures[1:2], a.failures[2]), a.blame(closed), "the other one was forgiven")
	a.node.workers[2].phase = broken
	require.Equal(t, newWorkerError(a.failures[1:2], a.failures[2]), a.blame(closed), "as it was where the end overtakes the restart")
	a.failures[2].nth = 4
	require.Equal(t, newWorkerError(a.failures[1:]), a.blame(closed), "the first of those that no restart was left for")
	require.Nil(t, a.blame(errTestStop))
	require.Nil(t, a.blame(rdzv.ErrClosed), "another node's, and what failed here cost a restart")
	a.spec.MaxRestarts = 0
	require.Equal(t, a.failures[2], a.blame(rdzv.ErrClosed).Failure, "another node's, and this came with it")
	a.failures[0] = Failure{Exit: Exit{PID: 70, Signal: 15}, Time: at(0)} // it was stopped
	require.NotContains(t, a.blame(closed).Report(), "70")
	a.failures[2].nth, a.node.workers[2].phase = 0, running
	a.failures[1].nth = 0
	require.Nil(t, a.blame(rdzv.ErrClosed))
}

// The end of the job may come before the leave to start the first one again: then both wait for it,
// and the earlier failure is not the cause.
func TestAReportNamesTheFailureThatEndedTheJobAndTheEarlierOneAsSuch(t *testing.T) {
	spec := job(t, "fail in turn", 2)
	spec.MaxRestarts = 1
	out := &proctest.Output{}
	spec.Stdout, spec.Stderr = out, out
	first := fifo(t, &spec)
	ended := make(chan error, 1)
	go func() {
		_, err := run(t, t.Context(), spec)
		ended <- err
	}()
	out.Await(t, "restart 1 of 1", 1)
	require.NoError(t, os.WriteFile(first, nil, 0)) // now rank 0 fails, which counts with rank 1
	out.Await(t, "the two count once", 1)
	require.NoError(t, os.WriteFile(first, nil, 0)) // and now it ends the job
	var failure *WorkerError
	require.ErrorAs(t, <-ended, &failure)
	require.Equal(t, 9, failure.Code)
	require.Len(t, failure.Earlier, 2)
	require.Empty(t, failure.Others)
	require.Regexp(t, `^first failure after the last restart, at [0-9:.]+: worker0 .* exited with code 9
  its last lines on stderr:
    the real reason
earlier, at [0-9:.]+ in round 0: worker1 .* exited with code 2
earlier, at [0-9:.]+ in round 0: worker0 .* exited with code 9
worker0 .* exited with code 9$`, failure.Report())
	many := *failure
	for range 6 {
		many.Earlier = append(many.Earlier, failure.Earlier[0])
	}
	require.Regexp(t, `(?m)\nearlier, at .*\nand 4 more\nearlier, at `, many.Report())
	require.Equal(t, maxOthers, strings.Count(many.Report(), "\nearlier, at "))
}

func TestAWorkerThatGivesUpOnALostOneCostsNoRestartAndTheReportHasTheLastWordsOfTheFirst(t *testing.T) {
	spec := job(t, "give up", 2)
	spec.MaxRestarts = 1
	out := &proctest.Output{}
	spec.Stdout, spec.Stderr = out, out
	first := fifo(t, &spec)
	ended := make(chan error, 1)
	go func() {
		_, err := run(t, t.Context(), spec)
		ended <- err
	}()
	out.Await(t, "restart 1 of 1", 1)
	require.NoError(t, os.WriteFile(first, nil, 0)) // now rank 0 gives up
	out.Await(t, "the two count once", 1)
	require.NoError(t, os.WriteFile(first, nil, 0)) // and once more: that is not for the loss of worker1
	var failure *WorkerError
	require.ErrorAs(t, <-ended, &failure)
	require.Regexp(t, `(?m)^earlier, at [0-9:.]+ in round 0: worker1 .* exited with code 2
  its last lines on stderr:
    the loss is NaN
earlier, at [0-9:.]+ in round 0: worker0 .* exited with code 1
worker0 .* exited with code 1$`, failure.Report())
	require.Contains(t, out.String(), "; the only restart is spent")
}

func TestAWorkerThatEndedTheJobIsSaidToHaveOutlivedAnotherIfItMayHaveGivenUpOnIt(t *testing.T) {
	at := time.Now()
	other := Failure{Exit: Exit{Rank: 1}, Time: at}
	last := Failure{Exit: Exit{Rank: 0}, started: at.Add(-time.Second), deaf: true}
	require.Equal(t, "worker1", (&WorkerError{Failure: last, Earlier: []Failure{other}}).outlived())
	hears, later := last, last
	hears.deaf, later.started = false, at.Add(time.Second)
	require.Empty(t, (&WorkerError{Failure: hears, Earlier: []Failure{other}}).outlived())
	require.Empty(t, (&WorkerError{Failure: later, Earlier: []Failure{other}}).outlived())
}

func TestAReportHasTheFailuresThatAWorkerHadBeforeItsLastOne(t *testing.T) {
	spec := job(t, "", 1)
	spec.MaxRestarts = 2
	spec.Program, spec.Args = "/bin/sh", []string{"-c", `mkdir "$0/1" 2>/dev/null && exit 9; mkdir "$0/2" 2>/dev/null && exit 8; exit 5`, t.TempDir()}
	_, err := run(t, t.Context(), spec)
	var failure *WorkerError
	require.ErrorAs(t, err, &failure)
	require.Regexp(t, `^first failure after the last restart, at .* exited with code 5
earlier, .* exited with code 9
earlier, .* exited with code 8
.* exited with code 5$`, failure.Report())
}

func TestALongReasonIsCutBetweenCharacters(t *testing.T) {
	f := Failure{Message: "a" + strings.Repeat("é", 300)}
	require.True(t, utf8.ValidString(f.brief()))
	require.Contains(t, f.brief(), "aéé")
	require.Less(t, len(f.brief()), 400)
}
