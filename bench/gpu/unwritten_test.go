package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/bench/gpu/internal/flags"
	"github.com/weft-project/weft/bench/gpu/internal/report"
)

// saved runs scripts as steps, with results in out.
func saved(t *testing.T, out string, scripts ...string) (stdout, stderr string, err error) {
	var said, errs bytes.Buffer
	var steps []step
	files := map[string]string{}
	for k, text := range scripts {
		name := string(rune('a' + k))
		files[name] = text
		steps = append(steps, step{name: name, argv: []string{name}, limit: time.Hour})
	}
	r := &runner{course: newCourse(steps, time.Now(), time.Hour), dir: bundle(t, files), out: out, started: time.Now(), stdout: &said, stderr: &errs}
	r.Date = "2026-11-22"
	err = r.run(t.Context())
	return said.String(), errs.String(), err
}

func TestWhereResultsCannotBeWrittenTheStepsRunAndTheResultsArePrinted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	ran := filepath.Join(t.TempDir(), "ran")
	stdout, stderr, err := saved(t, filepath.Join(file, "out"), "echo a >>"+ran, "echo b >>"+ran)
	require.ErrorIs(t, err, errUnwritten)
	require.Equal(t, 1, strings.Count(stderr, "the results cannot be written"), "it is told once")
	require.Contains(t, stdout, "| b | ok |")
	raw, err := os.ReadFile(ran)
	require.NoError(t, err)
	require.Equal(t, "a\nb\n", string(raw))
	code, _, _ := gpucheck(t, "-device", "interpreter", "-out", filepath.Join(file, "out"), "-only", "driver", "-budget", "1ns")
	require.Equal(t, codeUnwritten, code)
}

// A disk that is full leaves the file of before, and that there is room again is seen.
func TestADiskThatIsFullForAWhileCostsNothing(t *testing.T) {
	out := t.TempDir()
	part, kept := filepath.Join(out, "result.json.part"), filepath.Join(t.TempDir(), "kept")
	full := "ln -s /dev/full " + part
	_, stderr, err := saved(t, out, full, "cp "+filepath.Join(out, "result.json")+" "+kept+"; "+full, "true")
	require.ErrorIs(t, err, flags.ErrFailed, "no GPU was seen, and nothing else is wrong")
	require.Contains(t, stderr, "no space left on device")
	require.Equal(t, report.Complete, resultIn(t, out).State)
	require.NoFileExists(t, part)
	require.NoError(t, os.Rename(kept, filepath.Join(out, "result.json")))
	require.Equal(t, report.Running, resultIn(t, out).State, "it was whole all the time")
}

func TestEachFileIsWrittenThoughTheOtherCannotBe(t *testing.T) {
	out := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(out, "result.json"), 0o750))
	_, stderr, err := saved(t, out, "true")
	require.ErrorIs(t, err, errUnwritten)
	require.Contains(t, stderr, "result.json")
	page, err := os.ReadFile(filepath.Join(out, "result.md"))
	require.NoError(t, err)
	require.Contains(t, string(page), "**complete, and not all is well**")
}
