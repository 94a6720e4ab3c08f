package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/bench/gpu/internal/report"
	"github.com/weft-project/weft/internal/soak"
)

// plantedEnv names the folder of steps that the test binary runs, as a program of its own, in the
// place of a check's.
const plantedEnv = "WEFT_GPUCHECK_PLANTED"

// Each of the planted steps tells tellFile when it begins, runs and ends, and leaves a process
// behind.
const (
	plantedSteps  = 4
	tellFile      = 9
	plantedScript = "echo begins $1 >&9; sleep 600 & for k in 1 2 3; do echo runs $1 >&9; done; echo ends $1 >&9"
)

// plantedCheck is that program.
func plantedCheck(c context.Context, _ []string, stdout, stderr io.Writer) int {
	dir, now := os.Getenv(plantedEnv), time.Now()
	var steps []step
	for k := range plantedSteps {
		steps = append(steps, step{name: fmt.Sprint("step ", k), argv: []string{"planted", fmt.Sprint(k)}, limit: time.Hour})
	}
	r := &runner{
		course: newCourse(steps, now, time.Hour), dir: dir, out: filepath.Join(dir, "out"), started: now, stdout: stdout, stderr: stderr,
		Result: report.Result{Date: now.UTC().Format(time.RFC3339), Commit: "planted", State: report.Running},
	}
	if r.save() != nil {
		return codeUnwritten
	}
	_, _ = syscall.Write(tellFile, []byte("up\n"))
	if r.run(c) != nil { // no GPU was shown
		return codeFailed
	}
	return 0
}

// startPlanted starts that program. What it and its steps tell is read from the file, until none of
// them is left.
func startPlanted(t *testing.T, dir string) (cmd *exec.Cmd, from *os.File) {
	self, err := os.Executable()
	require.NoError(t, err)
	from, to, err := os.Pipe()
	require.NoError(t, err)
	cmd = exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), plantedEnv+"="+dir)
	cmd.ExtraFiles = slices.Repeat([]*os.File{to}, tellFile-2)
	require.NoError(t, cmd.Start())
	require.NoError(t, to.Close())
	return cmd, from
}

// A check that is killed at any moment, by a signal that can be caught or one that cannot, leaves
// two whole files that say what was done, and no process.
func TestACheckThatIsKilledAtAnyMomentLeavesWhatIsKnown(t *testing.T) {
	dir := bundle(t, map[string]string{"planted": plantedScript})
	states := map[string]int{}
	for n := range soak.Cases(20) {
		src := rand.New(rand.NewPCG(uint64(n), 2))
		sig := []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}[n%2]
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "out")))
		cmd, from := startPlanted(t, dir)

		said, lines := "", bufio.NewReader(from)
		for range 1 + src.IntN(5*plantedSteps) {
			line, err := lines.ReadString('\n')
			require.NoError(t, err)
			said += line
		}
		<-time.After(time.Duration(src.IntN(20)) * time.Millisecond)
		_ = cmd.Process.Signal(sig) // it may have ended
		_ = cmd.Wait()
		rest, err := io.ReadAll(lines) // which ends when no process is left
		require.NoError(t, err)
		states[tells(t, filepath.Join(dir, "out"), cmd.ProcessState, said+string(rest))]++
		require.NoError(t, from.Close())
	}
	require.Positive(t, states[report.Running])
	require.Positive(t, states["ended by SIGTERM"])
	t.Log(states)
}

// tells holds both files to what the steps have said, and returns the state that is told.
func tells(t *testing.T, dir string, ended *os.ProcessState, said string) string {
	r := resultIn(t, dir)
	page, err := os.ReadFile(filepath.Join(dir, "result.md"))
	require.NoError(t, err)
	require.Contains(t, string(page), "# gpucheck on an unknown GPU")
	var verdicts, onPage []string
	for _, s := range r.Steps {
		verdicts = append(verdicts, s.Verdict)
	}
	for _, row := range regexp.MustCompile(`(?m)^\| step \d \| ([a-z ]+) \|`).FindAllStringSubmatch(string(page), -1) {
		onPage = append(onPage, row[1])
	}
	require.Len(t, onPage, plantedSteps)

	done := 0
	for done < plantedSteps && verdicts[done] == report.OK {
		done++
	}
	under := report.Running
	if r.State != report.Running {
		under = report.Interrupted
		if by, ok := ended.Sys().(syscall.WaitStatus); !ok || !by.Signaled() { // else it was killed behind its last word
			require.Equal(t, codeFailed, ended.ExitCode())
		}
		require.Equal(t, verdicts, onPage)
	}
	after := verdicts[done:]
	if len(after) > 0 && after[0] == under {
		after = after[1:]
	}
	require.Equal(t, slices.Repeat([]string{report.Waiting}, len(after)), after, verdicts)
	differ := 0 // the page is written second
	for k := range verdicts {
		if verdicts[k] != onPage[k] {
			differ++
		}
	}
	require.LessOrEqual(t, differ, 1, "%v %v", verdicts, onPage)
	for k := range plantedSteps {
		if k < done {
			require.Contains(t, said, fmt.Sprint("ends ", k))
		}
		if strings.Contains(said, fmt.Sprint("begins ", k)) {
			require.GreaterOrEqual(t, done, k, "what was done before is known")
			require.NotEqual(t, report.Waiting, verdicts[k])
		}
	}
	return r.State
}

// Whoever writes to a pipe that nobody reads does not come back.
func TestACheckThatIsStuckIsEndedByASecondSignal(t *testing.T) {
	dir := bundle(t, map[string]string{"planted": plantedScript + "; rm -f out/result.md.part; mkfifo out/result.md.part; echo stuck >&9"})
	cmd, from := startPlanted(t, dir)
	lines := bufio.NewReader(from)
	for line := ""; line != "stuck\n"; {
		var err error
		line, err = lines.ReadString('\n')
		require.NoError(t, err)
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT)) // another one, as signals of one kind are not counted
	_ = cmd.Wait()
	require.Equal(t, codeFailed, cmd.ProcessState.ExitCode())
	_, err := io.ReadAll(lines)
	require.NoError(t, err)
	require.Equal(t, plantedSteps, len(resultIn(t, filepath.Join(dir, "out")).Steps))
}
