package agent

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/disttest/proctest"
)

func TestStreamsAreChosenAsWithTorchrun(t *testing.T) {
	for text, want := range map[string]Selection{
		"": {}, "0": {}, "1": {All: Stdout}, "2": {All: Stderr}, "3": {All: Stdout | Stderr},
		"0:1,1:2": {ByRank: map[int]Streams{0: Stdout, 1: Stderr}}, "7:3": {ByRank: map[int]Streams{7: 3}}, "0:0, 2:3": {ByRank: map[int]Streams{0: 0, 2: 3}},
	} {
		got, err := ParseSelection(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for text, want := range map[string][]string{
		"4":            {`expected 0 (none), 1 (stdout), 2 (stderr) or 3 (both), got "4"`},
		"out":          {`got "out"`},
		"0:5,x:1,-1:2": {`local rank 0: expected 0 (none)`, `got "x:1"`, `got "-1:2"`},
		"1:1,1:2":      {"local rank 1 is named twice"},
	} {
		_, err := ParseSelection(text)
		for _, part := range want {
			require.ErrorContains(t, err, part, text)
		}
	}
}

func FuzzParseSelection(f *testing.F) {
	for _, s := range []string{"", "3", "0:1,1:2", "0:,", ":3", "9999999999999999999:1", "7000000000000000000:0", "9223372036854775807:3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSelection(text)
		if err == nil {
			require.LessOrEqual(t, len(s.ByRank), len(text))
			delete(s.ByRank, math.MaxInt) // no number of workers has it
			require.NoError(t, s.check("it", math.MaxInt))
		}
	})
}

func TestWhatIsKeptIsShownOnlyWhereItIsToBe(t *testing.T) {
	l := Logs{Redirect: Selection{All: Stdout, ByRank: map[int]Streams{2: 3}}, Tee: Selection{ByRank: map[int]Streams{1: Stderr, 2: Stdout}}, Show: []int{0, 1, 2}}
	for rank, want := range [][2]Streams{{Stdout, Stderr}, {3, Stderr}, {3, Stdout}, {Stdout, 0}} {
		require.Equal(t, want, [2]Streams{l.kept(rank), l.shown(rank)}, "rank %d", rank)
	}
	require.Equal(t, Stdout|Stderr, Logs{}.shown(0))
	require.Zero(t, Logs{}.kept(0))
}

func TestLogsThatCannotBeAreRefusedTogether(t *testing.T) {
	t.Parallel()
	_, err := Run(t.Context(), Spec{Program: os.Args[0], NprocPerNode: 2, Logs: Logs{
		Redirect: Selection{ByRank: map[int]Streams{2: 1}}, Tee: Selection{All: 4}, Show: []int{0, -1}}})
	require.ErrorIs(t, err, ErrInvalidSpec)
	for _, want := range []string{"redirects: there is no local rank 2: they are 0 to 1", "tee: expected streams from 0 to 3, got 4",
		"local ranks to show: there is no local rank -1", "needs a log folder"} {
		require.ErrorContains(t, err, want)
	}
}

func TestALogFolderThatCannotBeWrittenIsRefusedBeforeAnythingStarts(t *testing.T) {
	t.Parallel()
	spec := job(t, "wait", 1)
	spec.Logs.Dir = filepath.Join(os.Args[0], "logs") // a file is no folder
	result, err := run(t, t.Context(), spec)
	require.ErrorIs(t, err, ErrInvalidSpec)
	require.ErrorContains(t, err, "log folder: open "+os.Args[0])
	require.Nil(t, result)
}

func TestLogsAreTheirUsersAlone(t *testing.T) {
	t.Parallel()
	spec := job(t, "explain", 2)
	spec.Logs = Logs{Dir: filepath.Join(t.TempDir(), "logs"), Redirect: Selection{All: Stdout | Stderr}}
	result, err := run(t, t.Context(), spec)
	require.Error(t, err)
	require.FileExists(t, filepath.Join(result.Logs, "round_0/attempt_0/1/error.json"))
	require.NoError(t, filepath.WalkDir(spec.Logs.Dir, func(path string, e os.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := e.Info()
		require.NoError(t, err)
		want := os.FileMode(0o600)
		if e.IsDir() {
			want = 0o700
		}
		require.Equal(t, want, info.Mode().Perm(), path)
		return nil
	}))
}

// logged gives the files below a folder, by their path in it.
func logged(t *testing.T, folder string) map[string]string {
	t.Helper()
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		name, _ := filepath.Rel(folder, path)
		out[filepath.ToSlash(name)] = string(b)
		return err
	}))
	return out
}

func TestOutputIsKeptByRoundAttemptAndRankAndTeesAreShown(t *testing.T) {
	t.Parallel()
	spec := job(t, "speak", 3)
	out := &proctest.Output{}
	spec.Stdout, spec.Stderr = out, out
	spec.RunID, spec.Logs.Dir = "../job 7", t.TempDir()
	spec.Logs.Redirect = Selection{ByRank: map[int]Streams{0: Stdout | Stderr, 1: Stdout}}
	spec.Logs.Tee = Selection{ByRank: map[int]Streams{2: Stderr}}
	result, err := run(t, t.Context(), spec)
	require.NoError(t, err)
	require.Equal(t, map[string]string{
		"round_0/attempt_0/0/stdout.log": "out\r50%\rof 0", "round_0/attempt_0/0/stderr.log": "err of 0\n",
		"round_0/attempt_0/1/stdout.log": "out\r50%\rof 1", "round_0/attempt_0/2/stderr.log": "err of 2\n",
	}, logged(t, result.Logs), "as they were written")
	require.Regexp(t, `^\.\._job_7_\d+$`, filepath.Base(result.Logs))
	require.Equal(t, spec.Logs.Dir, filepath.Dir(result.Logs))
	for line, n := range map[string]int{"[0] ": 0, "[1] err of 1\n": 1, "[1] out": 0, "[2] out\n": 1, "[2] of 2\n": 1, "[2] err of 2\n": 1} {
		require.Equal(t, n, strings.Count(out.String(), line), "%q in %s", line, out)
	}
}

func TestAWorkerThatIsStartedAgainHasFilesOfItsOwn(t *testing.T) {
	t.Parallel()
	spec := job(t, "fail once", 2)
	spec.MaxRestarts, spec.Logs = 1, Logs{Dir: t.TempDir(), Tee: Selection{All: Stdout}}
	result, err := run(t, t.Context(), spec)
	require.NoError(t, err)
	require.Equal(t, map[string]string{
		"round_0/attempt_0/0/stdout.log": "attempt 0\n", "round_0/attempt_0/1/stdout.log": "attempt 0\n", "round_0/attempt_1/1/stdout.log": "attempt 1\n",
	}, logged(t, result.Logs))
}

func TestOnlyTheRanksThatAreToBeShownAre(t *testing.T) {
	t.Parallel()
	spec := job(t, "speak", 3)
	out := &proctest.Output{}
	spec.Stdout, spec.Stderr = out, out
	spec.Logs.Show = []int{1}
	_, err := run(t, t.Context(), spec)
	require.NoError(t, err)
	require.Equal(t, 4, strings.Count(out.String(), "\n"), out)
	require.Equal(t, 4, strings.Count(out.String(), "[1] "), out)
}

func TestThePrefixOfTheLinesIsATemplate(t *testing.T) {
	t.Parallel()
	spec := job(t, "speak", 1)
	out := &proctest.Output{}
	spec.Stdout, spec.Role, spec.Prefix = out, "trainer", "${role_name}-${local_rank}/${rank}: "
	_, err := run(t, t.Context(), spec)
	require.NoError(t, err)
	require.Equal(t, "trainer-0/0: out\ntrainer-0/0: 50%\ntrainer-0/0: of 0\n", out.String())
}
