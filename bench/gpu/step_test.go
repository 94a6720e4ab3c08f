package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/bench/gpu/internal/report"
)

// judged runs a script as a step, and judges it.
func judged(c context.Context, t *testing.T, s step, script string) report.Outcome {
	s.name, s.argv = "planted", []string{"planted"}
	co := newCourse([]step{s}, time.Now(), time.Hour)
	s, limit, more := co.next(time.Now())
	require.True(t, more)
	co.ended(time.Now(), s.run(c, bundle(t, map[string]string{"planted": script}), limit, nil))
	return co.out[0]
}

func TestAStepThatPassesHasItsOutputKept(t *testing.T) {
	o := judged(t.Context(), t, step{limit: time.Hour, lines: true}, `echo begins; echo '{"case":"x","ms":1}'; echo "to errors" >&2; printf ends`)
	require.Equal(t, report.OK, o.Verdict, o.Why)
	require.Contains(t, o.Output, "begins\n")
	require.Contains(t, o.Output, "ends")
	require.Contains(t, o.Output, "to errors")
	require.NotContains(t, o.Output, "case")
	require.Equal(t, []map[string]any{{"case": "x", "ms": 1.0}}, o.Lines)
}

// tooLate runs a script that does not end, with a longer limit where the machine was too busy for
// it to come to what it prints.
func tooLate(t *testing.T, script, prints string, s step) report.Outcome {
	for s.limit = 200 * time.Millisecond; ; s.limit *= 2 {
		o := judged(t.Context(), t, s, script)
		if s.long {
			require.Equal(t, report.LeftOut, o.Verdict, o.Output)
		} else {
			require.Equal(t, report.Late, o.Verdict, o.Output)
			require.Contains(t, o.Why, "ended after "+s.limit.String())
		}
		if strings.Contains(o.Output, prints) {
			return o
		}
	}
}

func TestAStepThatHangsIsEndedWithAllThatItStarted(t *testing.T) {
	alive := newAlive(t)
	o := tooLate(t, alive.script+"sleep 600 & setsid sleep 600 & echo begun; sleep 600", "begun", step{})
	require.NotContains(t, o.Why, "left behind", "it was not asked to end them")
	alive.none(t)
}

func TestAStepThatIgnoresSignalsIsEnded(t *testing.T) {
	alive := newAlive(t)
	tooLate(t, alive.script+"trap '' TERM INT QUIT HUP; echo begun; sleep 600; sleep 600", "begun", step{})
	alive.none(t)
}

func TestAProgramOfGoThatHangsSaysWhere(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	silent := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, syscall.Mkfifo(silent, 0o600))
	o := tooLate(t, "exec "+self+" awake <>"+silent, "awakeMain", step{})
	require.Contains(t, o.Output, "SIGQUIT")
}

func TestWhatAStepLeavesBehindIsCountedAndEndedInWhateverSession(t *testing.T) {
	for _, leaves := range []string{"sleep 600 & sleep 600 &", "setsid sh -c 'sleep 600 & sleep 600' & sleep 600 &"} {
		alive := newAlive(t)
		o := judged(t.Context(), t, step{limit: time.Hour}, alive.script+leaves+" echo done")
		require.Equal(t, report.OK, o.Verdict)
		require.Contains(t, o.Why, "left behind and that were ended: ", leaves)
		alive.none(t)
	}
}

func TestAStepThatCrashesFailsByTheSignalsName(t *testing.T) {
	o := judged(t.Context(), t, step{limit: time.Hour}, "echo before; kill -SEGV $$")
	require.Equal(t, report.Failed, o.Verdict)
	require.Contains(t, o.Why, "segmentation fault")
	require.Contains(t, o.Output, "before")
	o = judged(t.Context(), t, step{limit: time.Hour}, "kill -TERM $$")
	require.Equal(t, report.Failed, o.Verdict, "nobody has ended the whole check")
	o = judged(t.Context(), t, step{limit: time.Hour}, "kill -KILL $PPID; sleep 600")
	require.Equal(t, report.Failed, o.Verdict, "the process above it is gone, and it with that")
}

// A driver may end the process in any call, and with 0.
func TestAStepThatDoesNotComeToItsEndFailsThoughItEndsWithZero(t *testing.T) {
	s := step{limit: time.Hour, last: "PASS"}
	for script, want := range map[string]string{
		"echo PASS": report.OK, "echo no PASS": report.Failed, "exit 0": report.Failed, "printf PASS": report.OK, "echo '{\"case\":\"x\"}'; echo PASS >&2": report.OK,
		"yes | head -c 1000000; echo PASS": report.OK, "echo PASS; exit 1": report.Failed, "echo '" + noTests + "'; echo PASS": report.Failed,
	} {
		require.Equal(t, want, judged(t.Context(), t, s, script).Verdict, script)
	}
}

func TestAStepThatIsUnderWayWhenTheCheckIsEndedHasNotFailed(t *testing.T) {
	for _, script := range []string{"sleep 600", "kill -TERM $$"} { // the whole machine is ended: the step has got the signal first
		c, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(100*time.Millisecond, func() { cancel(errors.New("ended by SIGTERM")) })
		o := judged(c, t, step{limit: time.Hour}, script)
		require.Equal(t, report.Interrupted, o.Verdict, script)
	}
}

func TestAStepThatPrintsALotCostsNoMore(t *testing.T) {
	for _, script := range []string{
		"echo head; yes | head -c 100000000; echo tail", `echo head >&2; yes '{"case":"x","ms":1}' | head -c 10000000; echo; echo tail`,
		"echo head; head -c 10000000 /dev/zero; echo; echo tail",
	} {
		o := judged(t.Context(), t, step{limit: time.Hour, lines: true}, script)
		require.Equal(t, report.OK, o.Verdict)
		require.Contains(t, o.Output, "head")
		require.Contains(t, o.Output, "tail")
		require.LessOrEqual(t, len(o.Output), told+100)
		require.LessOrEqual(t, len(o.Lines)*len(`{"case":"x","ms":1}`), mostLines)
	}
}

func TestFullResultsAreSmall(t *testing.T) {
	var r report.Result
	r.Date, r.State = "2026-11-22", report.Complete
	for range 2 * len(plan(options{at: "cuda:0", self: "/gpucheck"})) {
		var s said
		for s.line([]byte(`{"case":"x","op":"y","mode":"z","ms":1.25,"off":0.5}`)) {
		}
		s.text([]byte(strings.Repeat("\x00ä|", heldEach)))
		r.Steps = append(r.Steps, report.Outcome{Name: "a step", Verdict: report.Failed, Why: strings.Repeat("why ", 100), Output: s.String(), Lines: s.lines})
	}
	dir := t.TempDir()
	require.NoError(t, r.Write(dir))
	for _, name := range []string{"result.json", "result.md"} {
		is, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Less(t, is.Size(), int64(16<<20), name)
	}
}

func TestWhatMayTakeLongIsNotWrongWhenItsTimeIsUp(t *testing.T) {
	tooLate(t, "echo so far; sleep 600", "so far", step{long: true})
	require.Equal(t, report.Failed, judged(t.Context(), t, step{limit: time.Hour, long: true}, "exit 9").Verdict)
}
