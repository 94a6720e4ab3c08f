package main

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/cmd/weft/internal/cli"
	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/internal/disttest/hostile"
	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/internal/private"
	"github.com/weft-project/weft/internal/secret"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport"
)

func TestATokenFileThatOthersCanReadIsRefusedByEveryCommand(t *testing.T) {
	file := secretFile(t, transport.NewToken())
	_, _, stderr := weft(t, "run", "--token-file", t.TempDir(), os.Args[0], "show", "RANK")
	require.Contains(t, stderr, "it is a folder: expected a file")
	commands := [][]string{
		{"run", os.Args[0], "show", "RANK"}, {"status", "--rdzv-endpoint", "127.0.0.1:1"}, {"doctor", "--init", "tcp://127.0.0.1:1"},
		{"store", "get", "--url", "tcp://127.0.0.1:1", "k"}, {"store", "serve"},
	}
	for _, mode := range []os.FileMode{0o666, 0o644, 0o640, 0o604, 0o620} {
		require.NoError(t, os.Chmod(file, mode))
		for _, args := range commands {
			code, _, stderr := weft(t, slices.Insert(slices.Clone(args), len(args[:1+strings.Count(args[0], "store")]), "--token-file", file)...)
			require.Equal(t, cli.CodeUsage, code, stderr)
			require.Contains(t, stderr, "--token-file: "+file+": others can read this secret")
			require.Contains(t, stderr, "run chmod 600 "+file)
		}
	}
	require.NoError(t, os.Chmod(file, 0o400))
	_, err := secret.ReadFile(file)
	require.NoError(t, err)
	if os.Getuid() == 0 { // nobody else can give a file away
		require.NoError(t, os.Chown(file, 65534, 65534))
		_, err = secret.ReadFile(file)
		require.ErrorContains(t, err, "it belongs to uid 65534, and this is uid 0")
	}
}

func TestATokenThatWeftMakesServesAndItsFileIsItsUsersAlone(t *testing.T) {
	code, one, stderr := weft(t, "token")
	require.Zero(t, code, stderr)
	require.Equal(t, 1, strings.Count(one, "\n"))
	file := filepath.Join(t.TempDir(), "token")
	code, stdout, stderr := weft(t, "token", "--output", file)
	require.Zero(t, code, stderr)
	require.Empty(t, stdout)
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	other, err := secret.ReadFile(file)
	require.NoError(t, err)
	require.NotEqual(t, strings.TrimSpace(one), other)
	for _, token := range []string{one, other} {
		_, err := transport.IdentityFromToken(token, "j", "me", nil)
		require.NoError(t, err)
	}
	code, _, stderr = weft(t, "token", "--output", file)
	require.Equal(t, cli.CodeUsage, code)
	require.Contains(t, stderr, "--output: "+file+" is there already, and is kept")
}

func TestEtcdsPasswordIsNowhereOnACommandLine(t *testing.T) {
	const word = "secretword"
	for _, args := range [][]string{
		{"run", "--rdzv-backend", "etcd", "--rdzv-id", "j", "--rdzv-endpoint", "me:" + word + "@127.0.0.1:1", os.Args[0], "show", "RANK"},
		{"run", "--rdzv-backend", "etcd", "--rdzv-id", "j", "--rdzv-endpoint", "h", "--rdzv-conf", "user=me,password=" + word, os.Args[0], "show", "RANK"},
		{"status", "--rdzv-backend", "etcd", "--rdzv-id", "j", "--rdzv-endpoint", "etcd://me:" + word + "@127.0.0.1:1"},
		{"store", "get", "--url", "etcd://me:" + word + "@127.0.0.1:1/p", "k"},
	} {
		code, stdout, stderr := weft(t, args...)
		require.NotZero(t, code, args)
		require.Empty(t, stdout)
		require.Contains(t, stderr, "a password does not belong here, as a command line is shown to all users of this host", args)
		require.Contains(t, stderr, "$WEFT_ETCD_PASSWORD", args)
		require.NotContains(t, stderr, word)
	}
}

func TestAKeyThatOthersCanReadIsRefusedWhereItIsRead(t *testing.T) {
	dir := t.TempDir()
	f, err := hostile.Certificates(dir)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(f.Key, 0o640))
	_, err = transport.IdentityFromFiles(transport.IdentityFiles{CA: f.CA, Cert: f.Cert, Key: f.Key, Job: "none"})
	require.ErrorIs(t, err, private.ErrOpen)
	code, _, stderr := weft(t, "doctor", "--init", "tcp://127.0.0.1:1", "--ca", f.CA, "--cert", f.Cert, "--key", f.Key)
	require.NotZero(t, code)
	require.Contains(t, stderr, "run chmod 600 "+f.Key)
}

func TestCertificatesAreGivenByFlagsOrVariablesAndCountMoreThanASecretInTheEnvironment(t *testing.T) {
	f, err := hostile.Certificates(t.TempDir())
	require.NoError(t, err)
	id, err := transport.IdentityFromFiles(transport.IdentityFiles{CA: f.CA, Cert: f.Cert, Key: f.Key, Job: "none"})
	require.NoError(t, err)
	at := proctest.Address()
	r, _, _ := meetsWith(t, id.StoreTLS(), at, "none", rdzv.Config{Min: 1})
	require.Equal(t, rdzv.Place, (<-r.News).Kind)
	flags := []string{"--ca", f.CA, "--cert", f.Cert, "--key", f.Key}
	t.Setenv("WEFT_TOKEN", jobSecret)
	code, _, stderr := weft(t, append([]string{"status", "--rdzv-endpoint", at}, flags...)...)
	require.Zero(t, code, stderr)
	require.Empty(t, stderr)
	show := []string{os.Args[0], "show", rpc.CAVariable}
	code, stdout, stderr := weft(t, slices.Concat([]string{"run"}, flags, show)...)
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, rpc.CAVariable+"="+f.CA)
	require.NotContains(t, stderr, "is not used")

	t.Setenv(rpc.CAVariable, f.CA)
	t.Setenv(rpc.CertVariable, f.Cert)
	t.Setenv(rpc.KeyVariable, f.Key)
	const note = "weft: $WEFT_TOKEN is not used, for $WEFT_CA names certificates: unset one of the two\n"
	for _, args := range [][]string{{"status", "--rdzv-endpoint", at}, append([]string{"run"}, show...), {"doctor", "--init", "tcp://127.0.0.1:1"}} {
		_, _, stderr := weft(t, args...)
		require.Contains(t, stderr, note, args)
	}
	code, stdout, stderr = weft(t, slices.Concat([]string{"run", "--token-file", secretFile(t, jobSecret)}, show)...)
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, rpc.CAVariable+"=\n", "what a flag names comes before the environment")
	require.NotContains(t, stderr, note)
	for _, command := range [][]string{{"run"}, {"status", "--rdzv-endpoint", at}, {"store", "keys", "--url", "tcp://" + at}} {
		end := []string{}
		if command[0] == "run" {
			end = show
		}
		code, _, stderr = weft(t, slices.Concat(command, flags, []string{"--token-file", secretFile(t, jobSecret)}, end)...)
		require.Equal(t, cli.CodeUsage, code)
		require.Contains(t, stderr, "give one of them")
		code, _, stderr = weft(t, slices.Concat(command, flags[:2], end)...)
		require.Equal(t, cli.CodeUsage, code)
		require.Contains(t, stderr, "--ca, --cert and --key: expected a file in PEM for each")
	}
}

// The rule is in docs/launching.md, below the table of exit codes.
func TestAllCommandsHaveOneRuleForTheirExitCodes(t *testing.T) {
	t.Setenv("WEFT_TOKEN", jobSecret)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	file := at("file")
	require.NoError(t, os.WriteFile(file, []byte("text"), 0o644))
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	busy, nobody := taken.Addr().String(), proctest.Address()
	commands := map[string][]string{
		"run": {"run", "%", os.Args[0], "show", "RANK"}, "status": {"status", "--rdzv-endpoint", nobody, "%"},
		"doctor": {"doctor", "--init", "tcp://" + nobody, "%"}, "store": {"store", "get", "%", "--url", "tcp://" + nobody, "--connect-timeout", "50ms", "k"},
		"serve": {"store", "serve", "%", "--listen", "127.0.0.1:0"},
	}
	line := func(command string, flags ...string) []string {
		args := commands[command]
		i := slices.Index(args, "%")
		return slices.Concat(args[:i], flags, args[i+1:])
	}
	want := map[int][][]string{
		cli.CodeUsage: {
			line("run", "--trace", file), line("run", "--log-dir", file), {"token", "--output", file}, {"run", file},
			{"trace", "merge", "-o", at("new"), at("none")}, {"trace", "merge", "-o", file, file}, {"trace", "merge", "-o", at("none/new"), file},
			line("serve", "--journal", at("none/journal")), line("serve", "--metrics", "nonsense"), line("run", "--health-addr", "nonsense"),
			{"store", "serve", "--listen", "nonsense"}, {"store", "add", "--url", "file://" + at("store"), "k", "one"}, {"store", "barrier", "--url", "file://" + at("store"), "k", "no"},
		},
		cli.CodeFailed: {
			line("run", "--health-addr", busy), line("serve", "--metrics", busy), {"store", "serve", "--listen", busy},
			line("status"), line("doctor"), line("store"), {"trace", "merge", "-o", at("new"), file},
		},
	}
	for command := range commands {
		want[cli.CodeUsage] = append(want[cli.CodeUsage],
			line(command, "--token-file", file), line(command, "--token-file", at("none")), line(command, "--ca", file, "--cert", file, "--key", file),
			line(command, "--ca", file), line(command, "--no-such-flag"))
	}
	var runs sync.WaitGroup // some wait for what is not there
	for code, all := range want {
		for _, args := range all {
			runs.Go(func() {
				t.Run(strings.Join(args, " "), func(t *testing.T) {
					got, _, stderr := weft(t, args...)
					require.Equal(t, code, got, stderr)
					require.False(t, code == cli.CodeFailed && strings.Contains(stderr, "--help\" tells more"), stderr)
				})
			})
		}
	}
	runs.Wait()
	t.Setenv("WEFT_TOKEN", "short") // a variable in the place of a flag
	for _, args := range [][]string{line("run"), line("status"), line("doctor"), line("store", "--tls"), line("serve", "--tls")} {
		code, _, stderr := weft(t, args...)
		require.Equal(t, cli.CodeUsage, code, "%v: %s", args, stderr)
	}
}
