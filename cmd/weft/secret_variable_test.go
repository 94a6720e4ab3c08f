package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/cmd/weft/internal/cli"
	"github.com/weft-project/weft/cmd/weft/internal/secrets"
	"github.com/weft-project/weft/internal/disttest/hostile"
	"github.com/weft-project/weft/rpc"
)

// asking are command lines that need the job's secret. All but the first are wrong in what is
// looked at after that, so that they end at once.
func asking() map[string][]string {
	return map[string][]string{
		"run":         {os.Args[0], "show", "WEFT_TOKEN", "WEFT_TOKEN_FILE"},
		"status":      {"--rdzv-endpoint", "127.0.0.1:1", "--store-plain", "nonsense"},
		"doctor":      {"--init", "tcp://127.0.0.1:1", "--timeout", "0s"},
		"store get":   {"--tls", "--url", "tcp://127.0.0.1", "k"},
		"store serve": {"--tls", "--listen", "nonsense"},
	}
}

// asks runs one of them with flags.
func asks(t *testing.T, command string, flags ...string) (code int, stdout, stderr string) {
	t.Helper()
	return weft(t, slices.Concat(strings.Fields(command), flags, asking()[command])...)
}

func TestTheSecretMayLieInAFileThatAVariableNames(t *testing.T) {
	t.Setenv("WEFT_TOKEN", "")
	file := secretFile(t, jobSecret)
	t.Setenv("WEFT_TOKEN_FILE", file)
	code, stdout, stderr := asks(t, "run", "--no-prefix")
	require.Zero(t, code, stderr)
	require.Equal(t, "WEFT_TOKEN="+jobSecret+"\nWEFT_TOKEN_FILE=\n", stdout, "workers get the secret alone")
	for command := range asking() {
		_, _, stderr := asks(t, command)
		require.NotContains(t, stderr, "secret: ", command)
	}
	_, stdout, _ = weft(t, "doctor", "--quick")
	require.Contains(t, stdout, "WEFT_TOKEN_FILE is set: all jobs started from here share its secret")

	require.NoError(t, os.Chmod(file, 0o640))
	for command := range asking() {
		code, _, stderr := asks(t, command)
		require.Equal(t, cli.CodeUsage, code, "%s: %s", command, stderr)
		require.Contains(t, stderr, "$WEFT_TOKEN_FILE: "+file+": others can read this secret", command)
		require.Contains(t, stderr, "run chmod 600 "+file)
	}
	t.Setenv("WEFT_TOKEN", jobSecret)
	for command := range asking() {
		code, _, stderr := asks(t, command)
		require.Equal(t, cli.CodeUsage, code, "%s: %s", command, stderr)
		require.Contains(t, stderr, "$WEFT_TOKEN and $WEFT_TOKEN_FILE", command)
		_, _, stderr = asks(t, command, "--token-file", secretFile(t, jobSecret))
		require.NotContains(t, stderr, "$WEFT_TOKEN", "%s: a flag comes before the environment", command)
	}
}

// What somebody gave and is not used is said, but for what a flag replaces with its like.
func TestWhatIsGivenAndNotUsedIsSaid(t *testing.T) {
	f, flags := certificatesFor(t, "none")
	token := []string{"--token-file", secretFile(t, jobSecret)}
	const notSecret = "weft: $%s is not used, for $WEFT_CA names certificates: unset one of the two\n"
	const notCertificates = "weft: $WEFT_CA is not used, for %s names the job's secret: leave one of the two out\n"
	certificates := map[string]string{rpc.CAVariable: f.CA, rpc.CertVariable: f.Cert, rpc.KeyVariable: f.Key}
	for _, c := range []struct {
		variables map[string]string
		flags     []string
		want      string
	}{
		{map[string]string{"WEFT_TOKEN": jobSecret}, nil, strings.Replace(notSecret, "%s", "WEFT_TOKEN", 1)},
		{map[string]string{"WEFT_TOKEN_FILE": token[1]}, nil, strings.Replace(notSecret, "%s", "WEFT_TOKEN_FILE", 1)},
		{nil, token, strings.Replace(notCertificates, "%s", "--token-file", 1)},
		{map[string]string{"WEFT_TOKEN": jobSecret}, token, strings.Replace(notCertificates, "%s", "--token-file", 1)},
		{map[string]string{"WEFT_TOKEN": jobSecret}, flags, ""},
		{map[string]string{"PET_TOKEN_FILE": token[1]}, nil, strings.Replace(notCertificates, "%s", "$PET_TOKEN_FILE", 1)},
	} {
		for name := range map[string]bool{"WEFT_TOKEN": true, "WEFT_TOKEN_FILE": true, "PET_TOKEN_FILE": true} {
			t.Setenv(name, c.variables[name])
		}
		if c.variables["PET_TOKEN_FILE"] == "" {
			require.NoError(t, os.Unsetenv("PET_TOKEN_FILE"))
		}
		for name, value := range certificates {
			t.Setenv(name, value)
		}
		for command := range asking() {
			if c.variables["PET_TOKEN_FILE"] != "" && command != "run" && command != "status" {
				continue
			}
			_, _, stderr := asks(t, command, c.flags...)
			if c.want == "" {
				require.NotContains(t, stderr, "not used", "%s %+v", command, c)
				continue
			}
			require.Equal(t, 1, strings.Count(stderr, "not used"), "%s %+v: %s", command, c, stderr)
			require.Contains(t, stderr, c.want, "%s %+v", command, c)
		}
	}
}

// certificatesFor makes a job's certificates for worker0 and worker1, and the flags that name them.
func certificatesFor(t *testing.T, job string) (hostile.Files, []string) {
	t.Helper()
	f, err := hostile.Certificates(t.TempDir(), "weft://"+job+"/worker0", "weft://"+job+"/worker1")
	require.NoError(t, err)
	return f, []string{"--ca", f.CA, "--cert", f.Cert, "--key", f.Key}
}

func TestFlagsThatContradictEachOtherAreRefusedByEveryCommand(t *testing.T) {
	t.Setenv("WEFT_TOKEN", "")
	f, flags := certificatesFor(t, "none")
	token := []string{"--token-file", secretFile(t, jobSecret)}
	for command, rest := range asking() {
		rest = slices.DeleteFunc(rest, func(arg string) bool { return arg == "--tls" })
		for _, c := range []struct {
			flags []string
			want  string
		}{
			{slices.Concat(flags, token), "give one of them"},
			{flags[:2], "--ca, --cert and --key: expected a file in PEM for each; missing: --cert, --key"},
			{flags[2:4], "missing: --ca, --key"},
			{flags[2:], "missing: --ca"},
			{slices.Concat(flags[4:], token), "give one of them"},
			{[]string{"--token-file", ""}, "--token-file: expected a file, got an empty name"}, // as of a variable that is not set
			{[]string{"--key="}, "--key: expected a file, got an empty name"},
		} {
			code, _, stderr := weft(t, slices.Concat(strings.Fields(command), c.flags, rest)...)
			require.Equal(t, cli.CodeUsage, code, "%s %v: %s", command, c.flags, stderr)
			require.Contains(t, stderr, c.want, "%s %v", command, c.flags)
		}
		if strings.HasPrefix(command, "store") {
			for _, given := range [][]string{token, flags} {
				code, _, stderr := weft(t, slices.Concat(strings.Fields(command), []string{"--tls=false"}, given, rest)...)
				require.Equal(t, cli.CodeUsage, code, "%s %v: %s", command, given, stderr)
				require.Contains(t, stderr, "--tls=false: ", command)
			}
		}
	}
	for _, url := range []string{"file://" + t.TempDir() + "/store", "etcd://127.0.0.1:1/p"} {
		for _, given := range [][]string{token, flags, {"--tls"}} {
			code, _, stderr := weft(t, slices.Concat([]string{"store", "get", "--timeout", "0s", "--url", url, "k"}, given)...)
			require.Equal(t, cli.CodeUsage, code, "%s %v: %s", url, given, stderr)
			require.Contains(t, stderr, "--url: only a store at tcp:// takes a secret, or certificates, and this is at "+url[:4], "%v", given)
		}
	}
	for _, command := range [][]string{{"run", "--nnodes", "2", os.Args[0]}, {"status"}} {
		_, _, stderr := weft(t, slices.Insert(command, 1, "--rdzv-endpoint", "10.0.0.1:1")...)
		require.Contains(t, stderr, secrets.GiveOwn+"; or say --store-plain always")
	}
	t.Setenv(rpc.CertVariable, f.Cert)
	for command := range asking() {
		code, _, stderr := asks(t, command)
		require.Equal(t, cli.CodeUsage, code, "%s: %s", command, stderr)
		require.Contains(t, stderr, "expected a file in PEM for each", command)
	}
}
