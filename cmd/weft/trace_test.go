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
		{2, "out.json is there already; --force replaces it", []string{"-o", at("out.json"), at("a.json")}},
		{2, "a.json is one of the files to read", []string{"-o", filepath.Join(dir, ".", "a.json"), at("b.json"), at("a.json"), "--force"}},
	} {
		code, _, stderr = weft(t, append([]string{"trace", "merge"}, c.args...)...)
		require.Equal(t, c.code, code, "%v: %s", c.args, stderr)
		require.Contains(t, stderr, c.says)
	}
	code, _, stderr = weft(t, "trace", "merge", "--force", "-o", at("out.json"), at("a.json"))
	require.Zero(t, code, stderr)
}

func TestAMergedTraceIsItsUsersAloneAndWrittenThroughNoLink(t *testing.T) {
	dir := t.TempDir()
	in, out, victim := filepath.Join(dir, "in.json"), filepath.Join(dir, "out.json"), filepath.Join(t.TempDir(), "victim")
	require.NoError(t, os.WriteFile(in, []byte("[]"), 0o600))
	require.NoError(t, os.WriteFile(victim, []byte("text"), 0o600))
	require.NoError(t, os.Symlink(victim, out+".part")) // a name that anybody could guess
	require.NoError(t, os.Symlink(victim, out))
	code, _, stderr := weft(t, "trace", "merge", "--force", "-o", out, in)
	require.Zero(t, code, stderr)
	b, err := os.ReadFile(victim)
	require.NoError(t, err)
	require.Equal(t, "text", string(b))
	info, err := os.Lstat(out)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	left, err := filepath.Glob(filepath.Join(dir, ".*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestRunTellsTheWorkersWhereTheirTracesGo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spans")
	code, stdout, stderr := weft(t, "run", "--trace", dir, "--no-prefix", os.Args[0], "show", "WEFT_TRACE")
	require.Zero(t, code, stderr)
	require.Equal(t, "WEFT_TRACE="+dir+"\n", stdout)
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.ModeDir|0o700, info.Mode())
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
