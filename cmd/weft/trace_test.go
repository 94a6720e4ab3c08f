package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/rpc/trace"
)

func TestTracesOfSeveralWorkersBecomeOneFile(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for i, name := range []string{"a.json", "b.json"} {
		f, err := os.Create(at(name))
		require.NoError(t, err)
		c := trace.NewChrome(f)
		c.Span(trace.Span{ID: trace.ID(i)<<48 | 7, Parent: trace.ID(7 * i), Side: trace.Side(i), Worker: name, Kind: "call", Function: "f", Start: time.Now(), End: time.Now()})
		require.NoError(t, c.Close())
		require.NoError(t, f.Close())
	}
	code, stdout, stderr := weft(t, "trace", "merge", at("out.json"), at("a.json"), at("b.json"))
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "2 spans of 2 workers, 1 calls with both ends")
	before, err := os.ReadFile(at("out.json"))
	require.NoError(t, err)
	code, _, stderr = weft(t, "trace", "merge", at("out.json"), at("a.json"), at("a.json"))
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "a.json")
	after, err := os.ReadFile(at("out.json"))
	require.NoError(t, err)
	require.Equal(t, before, after, "a failure leaves what was there")
	code, _, _ = weft(t, "trace", "merge", at("out.json"))
	require.Equal(t, 2, code)
}

func TestRunTellsTheWorkersWhereTheirTracesGo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spans")
	code, stdout, stderr := weft(t, "run", "--trace", dir, "--no-prefix", os.Args[0], "show", "WEFT_TRACE")
	require.Zero(t, code, stderr)
	require.Equal(t, "WEFT_TRACE="+dir+"\n", stdout)
	require.DirExists(t, dir)
}
