package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// python makes a stand-in for the interpreter, which says with what it was called.
func python(t *testing.T) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "python")
	require.NoError(t, os.WriteFile(file, []byte("#!/bin/sh\necho \"python $*\"\n"), 0o755))
	t.Setenv("PYTHON_EXEC", file)
}

func TestScriptsAndModulesAreRunByPython(t *testing.T) {
	python(t)
	script := filepath.Join(t.TempDir(), "train.py")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\necho itself $*\n"), 0o755))
	other := strings.TrimSuffix(script, ".py")
	require.NoError(t, os.Rename(script, other))
	require.NoError(t, os.Link(other, script))
	for flags, want := range map[string]string{
		script + " --epochs 3":                  "python -u " + script + " --epochs 3\n",
		"--no-python " + script + " --epochs 3": "itself --epochs 3\n",
		"--run_path " + other + " -m":           "python -u " + other + " -m\n",
		other + " x":                            "itself x\n",
		"-m trainer.main ${local_rank}":         "python -u -m trainer.main 0\n",
		"--module trainer.main -r 3":            "python -u -m trainer.main -r 3\n",
	} {
		code, stdout, stderr := weft(t, append([]string{"run", "--no-prefix"}, strings.Fields(flags)...)...)
		require.Zero(t, code, stderr)
		require.Equal(t, want, stdout, flags)
	}
}

func TestTorchrunsFlagsThatChangeNothingAreTakenAndSaySo(t *testing.T) {
	t.Setenv("PET_EVENT_LOG_HANDLER", "console")
	code, stdout, stderr := weft(t, "run", "--start_method=fork", "--monitor-interval", "5", "--numa-binding=node", "--no-prefix", os.Args[0], "show", "RANK")
	require.Zero(t, code, stderr)
	require.Equal(t, "RANK=0\n", stdout)
	require.Equal(t, `weft: --start-method has no effect: every worker is a program that is started anew
weft: --monitor-interval has no effect: the end of a worker is seen when it happens
weft: --event-log-handler has no effect: what happens is told on stderr, and counted at --health-addr
weft: --numa-binding has no effect: the kernel places the workers; to bind them, start them under numactl
`, stderr)
}

func TestAFewFaultsOfTheCommandLineAreToldTogether(t *testing.T) {
	code, _, stderr := weft(t, "run", "--tee=5", "--redirects", "a:1", "--local_ranks_filter", "x", "--nproc-per-node=0", "gone.py")
	require.Equal(t, 2, code)
	for _, want := range []string{"--tee: expected 0", "--redirects: expected RANK:STREAMS", "--local-ranks-filter: ", "--nproc-per-node: ", `script "gone.py"`} {
		require.Contains(t, stderr, want)
	}
}

func TestLogFilesAreWrittenAndTheirFolderIsTold(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "<${role_name} ${rank}> ")
	code, stdout, stderr := weft(t, "run", "--nproc-per-node", "2", "--log_dir", dir, "-r", "0:1", "-t", "1:1", "--rdzv-id", "j", os.Args[0], "show", "RANK")
	require.Zero(t, code, stderr)
	require.Equal(t, "<default 1> RANK=1\n", stdout)
	require.Regexp(t, `^weft: log files are in `+dir+`/j_\d+\n$`, stderr)
	files, err := filepath.Glob(filepath.Join(dir, "j_*/round_0/attempt_0/*/*"))
	require.NoError(t, err)
	require.Len(t, files, 2)
	for i, file := range files {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, []string{"RANK=0\n", "RANK=1\n"}[i], string(b))
	}
}

// The table of exit codes is in docs/launching.md.
func TestAProgramThatCannotBeStartedHasTheExitCodeOfWhenItWasFound(t *testing.T) {
	file := func(text string, mode os.FileMode) string {
		name := filepath.Join(t.TempDir(), "program")
		require.NoError(t, os.WriteFile(name, []byte(text), mode))
		return name
	}
	for why, c := range map[string]struct {
		program string
		code    int
	}{
		"not there":            {filepath.Join(t.TempDir(), "none"), 2},
		"not executable":       {file("#!/bin/sh\n", 0o644), 2},
		"no #! line":           {file("echo\n", 0o755), 126},
		"no such interpreter":  {file("#!/no/such\n", 0o755), 127},
		"went away":            {file("#!/bin/sh\nrm \"$0\"\nexit 1\n", 0o755), 127},
		"no longer executable": {file("#!/bin/sh\nchmod -x \"$0\"\nexit 1\n", 0o755), 126},
		"its own code":         {file("#!/bin/sh\nexit 9\n", 0o755), 9},
		"killed":               {file("#!/bin/sh\nkill -9 $$\n", 0o755), 137},
	} {
		code, _, stderr := weft(t, "run", "--max-restarts", "1", c.program)
		require.Equal(t, c.code, code, "%s: %s", why, stderr)
	}
}

func TestAProgramThatRefusesAFlagOfWeftRunIsToldApartFromWeft(t *testing.T) {
	refuses := []string{"run", "--no-prefix", "sh", "-c", "exit $0"}
	const hint = "weft: the program got --nproc-per-node; if that was meant for weft run, it stands before the program's name\n"
	code, _, stderr := weft(t, append(refuses, "2", "--nproc_per_node=2")...)
	require.Equal(t, 2, code)
	require.Contains(t, stderr, hint)
	for _, args := range [][]string{{"3", "--nproc-per-node=2"}, {"2", "--epochs=2"}} {
		_, _, stderr := weft(t, append(refuses, args...)...)
		require.NotContains(t, stderr, hint, args)
	}
	code, _, stderr = weft(t, "run", "--no-prefix", "sh", "-c", "echo panic: no data >&2; exit 2", "sh", "--nproc-per-node=2")
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "panic: no data")
	require.NotContains(t, stderr, hint)
}
