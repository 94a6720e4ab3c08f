package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/printable"
)

// steers holds what moves a cursor, renames a window, forges a line, and turns the direction of
// writing.
const steers = "\x1b]0;mine\a\x1b[2J\rweft: all is well\u009b31m\u202e"

func TestWordsOfWorkersSteerNoTerminal(t *testing.T) {
	code, _, stderr := weft(t, "run", "--max-restarts", "1", os.Args[0], "curse")
	require.Equal(t, 3, code)
	require.Contains(t, stderr, "starting it again, restart 1 of 1")
	require.Contains(t, stderr, "its error file:\n     ]0;mine", "the report has it")
	require.Equal(t, printable.Lines(stderr, len(stderr)), stderr)
}
