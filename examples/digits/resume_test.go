package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic/agent"
	"github.com/weft-project/weft/elastic/rdzv"
)

// Dropout, Adam and a schedule: whatever is not saved, or is taken for another's, shows in the
// losses. 32 rows per step: 45 steps are an epoch, so step 50 lies within the second.
func TestTrainingResumedByAnyNumberOfProcessesHasTheLossesOfTheUndisturbedRun(t *testing.T) {
	args := []string{"--optimizer", "adam", "--lr", "0.01", "--dropout", "0.3", "--schedule", "cosine", "--epochs", "4"}
	undisturbed, saved := map[int][]float64{}, map[int]string{}
	with := func(workers int, more ...string) []float64 {
		t.Helper()
		return runJSON(t, append(append(more, "--workers", strconv.Itoa(workers)), args...)...).Losses
	}
	for _, workers := range []int{1, 2} {
		undisturbed[workers] = with(workers, "--steps", "100")
		saved[workers] = t.TempDir()
		require.Equal(t, undisturbed[workers][:50], with(workers, "--steps", "50", "--every", "25", "--checkpoint", saved[workers]), "saving changes nothing")
	}
	for _, before := range []int{1, 2} {
		for _, after := range []int{1, 2} {
			dir := t.TempDir()
			require.NoError(t, os.CopyFS(dir, os.DirFS(saved[before])))
			losses := with(after, "--steps", "100", "--checkpoint", dir, "--resume")
			want := undisturbed[before]
			if before == after {
				require.Equal(t, want, losses, "%d workers: to the last bit", after)
			} else {
				requireRelative(t, want[50:], losses[50:], 1e-6, "other workers")
			}
		}
	}
}

func TestACheckpointOfACompleteRunSaysThatNothingIsLeft(t *testing.T) {
	args := []string{"--workers", "1", "--steps", "2", "--plot", "", "--checkpoint", t.TempDir(), "--resume"}
	require.Zero(t, run(t.Context(), args, io.Discard, io.Discard))
	var out bytes.Buffer
	require.Zero(t, run(t.Context(), args, &out, io.Discard))
	require.Regexp(t, `\nnothing is left to train: 2 steps are made; give --epochs or --steps more\ntest accuracy`, out.String())
}

func TestAJobThatIsStartedAgainGoesOnFromItsCheckpoint(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	file, out := filepath.Join(t.TempDir(), "pid"), new(seen)
	spec := agent.Spec{
		Program: self, NprocPerNode: 2, Stdout: out, Stderr: out, MaxRestarts: 2, Policy: rdzv.RestartGroup,
		Args: []string{"--epochs", "3", "--plot", "", "--checkpoint", t.TempDir(), "--every", "20", "--resume"},
		Env:  append(os.Environ(), "TEST_PID_TO="+file, "TEST_PID_OF=1", "TEST_KILLS="+file), // at the end of the second epoch, which is step 90
	}
	_, err = agent.Run(t.Context(), spec)
	require.NoError(t, err, "%s", out)
	require.Contains(t, out.String(), "goes on from the checkpoint of step 80")
	require.Equal(t, 1, strings.Count(out.String(), "epoch  1/3"), "%s", out)
}

func TestACheckpointOfAnotherRunIsRefusedWithWhatDiffers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	args := []string{"--workers", "1", "--steps", "2", "--plot", "", "--hidden", "8", "--checkpoint", dir, "--dropout", "0.5"}
	var printed bytes.Buffer
	fails := func(code int, why string, more ...string) {
		t.Helper()
		var errs bytes.Buffer
		printed.Reset()
		require.Equal(t, code, run(t.Context(), append(args[:len(args):len(args)], more...), &printed, &errs), "%s", &printed)
		require.Contains(t, errs.String(), why)
	}
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	fails(1, "digits: --checkpoint: open "+file+": not a directory", "--checkpoint", filepath.Join(file, "new"), "--steps", "0") // at once, not after 50 steps
	open := t.TempDir()
	require.NoError(t, os.Chmod(open, 0o777))
	fails(1, "digits: --checkpoint: "+open+" has mode 0777", "--checkpoint", open)
	require.NotContains(t, printed.String(), "epoch", "before any step")
	var log bytes.Buffer
	require.Zero(t, run(t.Context(), append(args[:len(args):len(args)], "--resume"), io.Discard, &log))
	require.Equal(t, "digits: no checkpoint in "+dir+" yet: training starts anew\n", log.String())
	fails(1, "has a checkpoint of step 2; go on from it with --resume, or name another folder")
	fails(1, "--batch 32 --hidden 8 --optimizer sgd --lr 0.1 --dropout 0.5 --schedule constant, and this one has ", "--resume", "--batch", "16")
	fails(1, "and this one has --data \"\" --seed 1 --batch 32 --hidden 16 --optimizer adam --lr 0.001 ", "--resume", "--hidden", "16", "--optimizer", "adam")
	fails(2, "--resume and --every are of checkpoints", "--resume", "--checkpoint", "")
	fails(2, "--every 0; expected 1", "--every", "0")
	fails(2, "--dropout 1; expected", "--dropout", "1")
	var errs bytes.Buffer
	require.Equal(t, 2, run(t.Context(), []string{"--optimizer", "x"}, io.Discard, &errs))
	require.Equal(t, "digits: --optimizer x; expected sgd or adam\nsee digits --help\n", errs.String(), "no word of the rate that it would have")
	fails(2, "--schedule x; expected constant or cosine", "--schedule", "x")
	losses := runJSON(t, append(args, "--resume", "--steps", "4")...).Losses
	require.Len(t, losses, 4)
	require.Equal(t, losses, runJSON(t, append(args, "--resume", "--steps", "4")...).Losses, "nothing is left to do")
}
