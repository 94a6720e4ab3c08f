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
	code, stdout, stderr := weft(t, "trace", "merge", "-o", at("out.json"), at("a.json"), at("b.json"))
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "2 spans of 2 workers, 1 calls with both ends")
	before, err := os.ReadFile(at("out.json"))
	require.NoError(t, err)
	code, _, stderr = weft(t, "trace", "merge", "-o", at("out.json"), "--force", at("a.json"), at("a.json"))
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "a.json")
	after, err := os.ReadFile(at("out.json"))
	require.NoError(t, err)
	require.Equal(t, before, after, "a failure leaves what was there")
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{2, "the file to write and the files to read, as in: weft trace merge -o", []string{at("a.json"), at("b.json")}},
		{2, "the file to write and the files to read", []string{"-o", at("out.json")}},
		{1, "out.json is there already; --force replaces it", []string{"-o", at("out.json"), at("a.json")}},
		{1, "a.json is one of the files to read", []string{"-o", filepath.Join(dir, ".", "a.json"), at("b.json"), at("a.json"), "--force"}},
	} {
		code, _, stderr = weft(t, append([]string{"trace", "merge"}, c.args...)...)
		require.Equal(t, c.code, code, "%v: %s", c.args, stderr)
		require.Contains(t, stderr, c.says)
	}
	code, _, stderr = weft(t, "trace", "merge", "--force", "-o", at("out.json"), at("a.json"))
	require.Zero(t, code, stderr)
}

func TestRunTellsTheWorkersWhereTheirTracesGo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spans")
	code, stdout, stderr := weft(t, "run", "--trace", dir, "--no-prefix", os.Args[0], "show", "WEFT_TRACE")
	require.Zero(t, code, stderr)
	require.Equal(t, "WEFT_TRACE="+dir+"\n", stdout)
	require.DirExists(t, dir)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "worker0.json"), []byte("[]"), 0o644))
	for _, args := range [][]string{{"--trace", dir}, nil} { // by the flag, and by the environment
		if args == nil {
			t.Setenv("WEFT_TRACE", dir)
		}
		code, stdout, stderr = weft(t, append(append([]string{"run"}, args...), os.Args[0], "show", "WEFT_TRACE")...)
		require.Equal(t, 2, code, "the traces of two jobs must not mix")
		require.Contains(t, stderr, "worker0.json of another job")
		require.Empty(t, stdout)
	}
}
