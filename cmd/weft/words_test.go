package main

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/internal/printable"
	"github.com/weft-project/weft/rpc"
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

func TestWordsOfOtherMachinesSteerNoTerminalOfWhoLooksAtThem(t *testing.T) {
	seen := rdzv.Seen{Node: rdzv.Node{ID: steers, Addr: steers, Slots: 1}, Earlier: []rdzv.Parted{{ID: steers, Why: steers}}}
	f := frame{View: rdzv.View{Leader: steers, Nodes: []rdzv.Seen{seen}, Ended: []rdzv.Parted{{ID: steers, Why: steers}}}, job: steers, store: steers}
	f.Phase, f.Failed, f.Outcome = rdzv.Closed, true, steers
	var out bytes.Buffer
	printSilent(&out, []rpc.Observed{{Rank: 1, Name: "worker1", Addr: "h:1", Err: errors.New(steers)}}, "127.0.0.1:1")
	r := &board{before: &frame{}}
	for where, text := range map[string]string{"status": f.text(), "status --watch": strings.Join(r.changes(f), "\n"), "doctor": out.String()} {
		require.Contains(t, text, "mine", where)
		require.Equal(t, printable.Lines(text, len(text)), text, where)
	}
}
