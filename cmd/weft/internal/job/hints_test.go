package job

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

func registered() (*cobra.Command, *Flags) {
	cmd, f := &cobra.Command{}, new(Flags)
	f.Register(cmd)
	return cmd, f
}

func TestAnUnknownFlagIsToldTheOneThatMayBeMeantOrWhereAProgramsFlagsStand(t *testing.T) {
	const behind = "flags of the program stand behind its name"
	for arg, want := range map[string]string{
		"--nproc-per-nod":     "did you mean --nproc-per-node?",
		"--nprocs_per_node=2": "did you mean --nproc-per-node?",
		"--nproc":             "did you mean --nproc-per-node?", // the only one that begins so
		"--standalon":         "did you mean --standalone?",
		"-nproc-per-node":     "did you mean --nproc-per-node?", // as a program of Go's would take it
		"--rdzv":              behind,                           // several begin so
		"--lr":                behind,
		"--epochs=5":          behind,
		"-x":                  behind,
	} {
		cmd, f := registered()
		err := f.Unknown(cmd.ParseFlags([]string{arg}))
		require.ErrorContains(t, err, "; "+want, arg)
		require.ErrorContains(t, err, "unknown ", arg)
	}
	_, f := registered()
	other := errors.New("flag needs an argument: --role")
	require.Equal(t, other, f.Unknown(other))
}

func TestTheDistanceOfTwoWordsIsThatOfTheirDefinition(t *testing.T) {
	var defined func(a, b string) int
	defined = func(a, b string) int {
		switch {
		case a == "" || b == "":
			return len(a) + len(b)
		case a[0] == b[0]:
			return defined(a[1:], b[1:])
		}
		return 1 + min(defined(a[1:], b), defined(a, b[1:]), defined(a[1:], b[1:]))
	}
	words := []string{"", "a", "b", "ab", "ba", "abc", "cab", "abab", "baba", "acbd", "nodes", "nnode"}
	for _, a := range words {
		for _, b := range words {
			require.Equal(t, defined(a, b), distance(a, b), "%q, %q", a, b)
		}
	}
}

func TestFlagsOfWeftRunAreFoundAmongAProgramsArguments(t *testing.T) {
	_, f := registered()
	for _, c := range []struct {
		args  []string
		found string
	}{
		{[]string{"--nproc-per-node", "2"}, "--nproc-per-node"},
		{[]string{"--epochs", "5", "--max_restarts=3"}, "--max-restarts"},
		{[]string{"--epochs=5", "nnodes", "-r", "3"}, ""},
		{[]string{"--", "--nnodes=2"}, ""},
		{nil, ""},
	} {
		said := f.Misplaced(c.args, []string{"usage: of the program"})
		require.Equal(t, c.found == "", said == "", "%v: %s", c.args, said)
		require.Contains(t, said, c.found)
	}
}

func TestAPanicOfAProgramIsNotLaidToItsFlags(t *testing.T) {
	_, f := registered()
	args := []string{"--log-dir", "logs"}
	for line, panics := range map[string]bool{
		"panic: no data": true, "fatal error: all goroutines are asleep - deadlock!": true,
		"goroutine 1 [running]:": true, "\t/src/main.go:12 +0x1d": true,
		"flag provided but not defined: -log-dir": false, "main.go:12: no data": false, "no panic: none": false,
	} {
		require.Equal(t, panics, f.Misplaced(args, []string{"first", line, ""}) == "", line)
	}
}

func TestSourceTextInTheProgramsPlaceIsToldHowToBuildIt(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.MkdirAll("cmd/trainer", 0o700))
	require.NoError(t, os.MkdirAll("empty", 0o700))
	file, script := filepath.Join("cmd", "trainer", "main.go"), "script.go"
	require.NoError(t, os.WriteFile(file, []byte("package main\n"), 0o600))
	require.NoError(t, os.WriteFile("main.go", []byte("package main\n"), 0o600))
	for program, want := range map[string]string{
		file:            `program "cmd/trainer/main.go" is source text; build it first, as in: go build -o bin/ ./cmd/trainer`,
		"main.go":       "as in: go build -o bin/ .",
		"./cmd/trainer": `program "./cmd/trainer" is a folder of source text; build it first, as in: go build -o bin/ ./cmd/trainer`,
	} {
		_, f := registered()
		_, err := f.Spec([]string{program})
		require.ErrorContains(t, err, want)
	}
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/true\n"), 0o700)) //nolint:gosec // it is to be executable
	for _, program := range []string{script, "empty", "nowhere.go"} {
		require.NoError(t, source(program), program)
	}
}

func TestAProgramInPathIsNotTakenForAFolderOfThatName(t *testing.T) {
	t.Chdir(t.TempDir())
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	require.NoError(t, os.MkdirAll("trainer", 0o700))
	require.NoError(t, os.WriteFile(filepath.Join("trainer", "main.go"), []byte("package main\n"), 0o600))
	require.ErrorContains(t, source("trainer"), "is a folder of source text")
	require.NoError(t, os.WriteFile(filepath.Join(bin, "trainer"), []byte("#!/bin/true\n"), 0o700)) //nolint:gosec // it is to be executable
	require.NoError(t, source("trainer"))
	require.ErrorContains(t, source("./trainer"), "is a folder of source text")
	require.ErrorContains(t, source("trainer/"), "is a folder of source text")
}
