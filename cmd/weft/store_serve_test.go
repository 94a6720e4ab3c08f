package main

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/cmd/weft/internal/cli"
	"github.com/weft-project/weft/cmd/weft/internal/secrets"
	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/rpc"
)

// serving starts "weft store serve" as a process and gives its URL. end ends it by a signal and
// returns what it had still to say.
func serving(t *testing.T, args ...string) (url string, cmd *exec.Cmd, end func(os.Signal) []string) {
	t.Helper()
	cmd, out := background(t, append([]string{"store", "serve", "--listen", "127.0.0.1:0"}, args...)...)
	url = <-out
	require.Regexp(t, `^tcp://127\.0\.0\.1:\d+$`, url)
	return url, cmd, func(sig os.Signal) []string {
		require.NoError(t, cmd.Process.Signal(sig))
		var last []string
		for line := range out {
			last = append(last, line)
		}
		err := cmd.Wait()
		if sig != os.Kill {
			require.NoError(t, err, "%v", last)
		}
		return last
	}
}

func secretFile(t *testing.T, secret string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(secret+"\n"), 0o600))
	return file
}

func TestAServedStoreSaysWhereItIsAndEndsCleanlyOnASignal(t *testing.T) {
	leak.Check(t)
	for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		url, _, end := serving(t)
		code, _, stderr := weft(t, "store", "set", "k", "v", "--url", url)
		require.Zero(t, code, stderr)
		last := end(sig)
		require.Len(t, last, 1)
		require.Regexp(t, `^weft: the store at \S+ ended after \S+: 1 connections, 1 commands, 1 keys and \d+ bytes in it at the end$`, last[0])
	}
}

func TestAStoreThatCannotListenSaysWhy(t *testing.T) {
	_, url := shell(t)
	taken := strings.TrimPrefix(url, "tcp://")
	code, stdout, stderr := weft(t, "store", "serve", "--listen", taken)
	require.Equal(t, cli.CodeFailed, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "address already in use")
	code, stdout, stderr = weft(t, "store", "serve", "--listen", "127.0.0.1:0", "--metrics", taken)
	require.Equal(t, cli.CodeFailed, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "--metrics: ")
}

func TestAllThatIsWrongWithAStoreToServeIsToldAtOnce(t *testing.T) {
	code, stdout, stderr := weft(t, "store", "serve", "--dialect", "3.1", "--plain", "perhaps", "--max-memory", "some", "--fsync", "often", "--token-file", "/nowhere/token")
	require.Equal(t, cli.CodeUsage, code)
	require.Empty(t, stdout)
	for _, part := range []string{`--dialect: unknown dialect "3.1"`, `--plain: expected auto, always or never, got "perhaps"`, `--max-memory: expected a number of bytes`, "--fsync: ", "--token-file: "} {
		require.Contains(t, stderr, part)
	}
	for _, c := range []struct{ args, want string }{
		{"--listen :29500", "names no host"}, {"--max-clients -1", "MaxClients must not be negative"}, {"--plain never", "give --token-file, or --ca, --cert and --key"},
		{"--tls", "--tls needs the job's secret"}, {"--listen 0.0.0.0:0", "other machines can reach 0.0.0.0:0: give --tls and the job's secret, or --plain always"},
	} {
		t.Setenv("WEFT_TOKEN", "")
		code, _, stderr := weft(t, append([]string{"store", "serve"}, strings.Fields(c.args)...)...)
		require.Equal(t, cli.CodeUsage, code, c.args)
		require.Contains(t, stderr, c.want, c.args)
	}
}

func TestAStoreWithASecretServesOnlyThoseWhoKnowIt(t *testing.T) {
	leak.Check(t)
	secret, other := secretFile(t, jobSecret), secretFile(t, otherSecret)
	url, _, end := serving(t, "--token-file", secret, "--plain", "never")
	code, _, stderr := weft(t, "store", "set", "k", "v", "--url", url, "--token-file", secret)
	require.Zero(t, code, stderr)
	t.Setenv("WEFT_TOKEN", jobSecret)
	code, stdout, stderr := weft(t, "store", "get", "k", "--url", url, "--tls")
	require.Zero(t, code, stderr)
	require.Equal(t, "v", stdout)
	t.Setenv(rpc.StoreTLSVariable, "1")
	t.Setenv("MASTER_ADDR", "127.0.0.1")
	t.Setenv("MASTER_PORT", url[strings.LastIndexByte(url, ':')+1:])
	code, stdout, stderr = weft(t, "store", "get", "k")
	require.Zero(t, code, stderr)
	require.Equal(t, "v", stdout, "as a worker of the job")

	code, stdout, stderr = weft(t, "store", "get", "k", "--url", url, "--token-file", other)
	require.Equal(t, cli.CodeFailed, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "the job there has another secret than this, or other certificates, or it is another job's id")
	code, stdout, stderr = weft(t, "store", "get", "k", "--url", url, "--token-file", secret, "--rdzv-id", "other")
	require.Equal(t, cli.CodeFailed, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "give the id of its job, by --rdzv-id, and its secret, or certificates, if those differ, too")
	code, stdout, stderr = weft(t, "store", "get", "k", "--tls=false")
	require.Equal(t, cli.CodeFailed, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "the store takes TLS alone, and this client speaks plain text")
	require.Contains(t, stderr, secrets.GiveOwn)
	end(syscall.SIGTERM)
}

func TestWhoShowsNoSecretToAStoreThatHasTLSIsToldThatThereAreOtherKeys(t *testing.T) {
	leak.Check(t)
	t.Setenv("WEFT_TOKEN", "")
	secret := secretFile(t, jobSecret)
	url, _, end := serving(t, "--token-file", secret)
	code, _, stderr := weft(t, "store", "set", "k", "v", "--url", url, "--token-file", secret)
	require.Zero(t, code, stderr)
	const hint = "weft: these are the keys of guests: "
	code, stdout, stderr := weft(t, "store", "keys", "--url", url)
	require.Zero(t, code, stderr)
	require.Empty(t, stdout)
	require.Contains(t, stderr, hint)
	code, _, stderr = weft(t, "store", "get", "k", "--timeout", "0s", "--url", url)
	require.Equal(t, cli.CodeMissing, code)
	require.Contains(t, stderr, hint)
	code, stdout, stderr = weft(t, "store", "keys", "--url", url, "--token-file", secret)
	require.Zero(t, code)
	require.Equal(t, "k\n", stdout)
	require.Empty(t, stderr)
	end(syscall.SIGTERM)
	url, _, end = serving(t) // without TLS
	code, _, stderr = weft(t, "store", "keys", "--url", url)
	require.Zero(t, code)
	require.Empty(t, stderr)
	end(syscall.SIGTERM)
}

func TestWhoAsksForTLSWhereThereIsNoneIsToldSo(t *testing.T) {
	run, _ := shell(t)
	code, _, stderr := run("get", "k", "--token-file", secretFile(t, jobSecret), "--connect-timeout", "300ms")
	require.Equal(t, cli.CodeFailed, code)
	require.Contains(t, stderr, "it may be a store without TLS (--tls=false), or none")
}

func TestWhatIsNoStoreIsTold(t *testing.T) {
	code, _, stderr := weft(t, "store", "get", "k", "--url", "tcp://"+proctest.Address(), "--connect-timeout", "50ms")
	require.Equal(t, cli.CodeFailed, code)
	require.Contains(t, stderr, ", or not yet: is the store running (weft store serve")
}

func TestAJournalOutlivesTheStoreAndADamagedOneIsRefused(t *testing.T) {
	leak.Check(t)
	file := filepath.Join(t.TempDir(), "journal")
	url, _, end := serving(t, "--journal", file, "--fsync", "never")
	for _, value := range []string{"one", "two", "three"} {
		code, _, stderr := weft(t, "store", "set", "k", value, "--url", url)
		require.Zero(t, code, stderr)
	}
	code, _, stderr := weft(t, "store", "serve", "--listen", "127.0.0.1:0", "--journal", file)
	require.Equal(t, cli.CodeFailed, code)
	require.Contains(t, stderr, "in use by another process")
	end(os.Kill)
	url, _, end = serving(t, "--journal", file)
	code, stdout, stderr := weft(t, "store", "get", "k", "--url", url)
	require.Zero(t, code, stderr)
	require.Equal(t, "three", stdout)
	end(syscall.SIGTERM)

	content, err := os.ReadFile(file)
	require.NoError(t, err)
	content[bytes.Index(content, []byte("one"))] ^= 1
	require.NoError(t, os.WriteFile(file, content, 0o600))
	code, stdout, stderr = weft(t, "store", "serve", "--listen", "127.0.0.1:0", "--journal", file)
	require.Equal(t, cli.CodeFailed, code)
	require.Empty(t, stdout)
	require.Regexp(t, `corrupt at byte (\d+)[^\n]*\nwhat stands before that byte is whole.*truncate -s \d+ `, stderr)
}

func TestAFullStoreSaysSo(t *testing.T) {
	leak.Check(t)
	url, _, end := serving(t, "--max-memory", "1KiB")
	code, _, stderr := weft(t, "store", "set", "k", strings.Repeat("x", 2000), "--url", url)
	require.Equal(t, cli.CodeFailed, code)
	require.Contains(t, stderr, "store is full")
	end(syscall.SIGTERM)
}

func TestPrometheusReadsWhatAStoreCounts(t *testing.T) {
	leak.Check(t)
	cmd, out := background(t, "store", "serve", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0")
	first := <-out
	_, metrics, told := strings.Cut(first, "weft: metrics at ")
	require.True(t, told, first)
	url := <-out
	code, _, stderr := weft(t, "store", "set", "k", "v", "--url", url)
	require.Zero(t, code, stderr)
	resp, err := http.Get(metrics)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	http.DefaultClient.CloseIdleConnections()
	for _, line := range []string{"weft_store_connections_total 1", `weft_store_commands_total{command="set"} 1`, "weft_store_keys 1", "weft_store_waiters 0"} {
		require.Contains(t, string(body), "\n"+line+"\n")
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	for range out {
	}
	require.NoError(t, cmd.Wait())
}
