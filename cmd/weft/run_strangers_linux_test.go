package main

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/cmd/weft/internal/cli"
	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/store"
)

func TestAnotherUserOfTheHostReachesNothingOfAJob(t *testing.T) {
	t.Parallel()
	for name, secret := range map[string]string{"with a secret": jobSecret, "without one": ""} {
		t.Run(name, func(t *testing.T) {
			at, done := proctest.Address(), filepath.Join(t.TempDir(), "done")
			l := &launchers{t: t, env: []string{"WEFT_TOKEN=" + secret}, args: []string{"--nnodes", "2", "--rdzv-endpoint", at, os.Args[0], "stay", done}}
			agents := []interface{ Wait() error }{l.launch(), l.launch()}
			l.Await(t, " of 2\n", 2)
			workers := regexp.MustCompile(`the workers' store is tcp://(\S+)`).FindStringSubmatch(l.String())[1]

			other := stranger(t)
			for _, addr := range []string{at, workers} {
				var heard []byte
				require.NoError(t, other.Ask(t.Context(), "count", addr, &heard))
				require.Contains(t, []string{"!tls", "!uid"}, string(heard), "that it is another user's, or takes TLS alone")
			}
			l.Await(t, "uid 65534", 1)
			heard, err := countKeys(t.Context(), at)
			require.NoError(t, err)
			if secret != "" {
				require.Equal(t, "!tls", string(heard), "the rendezvous takes no plain text of anybody")
				heard, err = countKeys(t.Context(), workers)
				require.NoError(t, err)
				require.Zero(t, binary.LittleEndian.Uint64(heard), "guests see nothing of the job")
			} else {
				require.NotZero(t, binary.LittleEndian.Uint64(heard))
			}
			require.NoError(t, os.WriteFile(done, nil, 0o600))
			for _, agent := range agents {
				require.NoError(t, agent.Wait(), l)
			}
		})
	}
}

func TestTwoUsersOfAHostThatMeetWithoutASecretAreToldWhatTheyNeed(t *testing.T) {
	t.Setenv("WEFT_TOKEN", "")
	other := stranger(t)
	ours, theirs := proctest.Address(), proctest.Address()
	server, err := store.Serve(store.ServerConfig{Addr: ours})
	require.NoError(t, err)
	defer server.Close()
	require.NoError(t, other.Ask(t.Context(), "store", theirs, nil))
	for _, c := range []struct {
		at, fault, advice string
		args              []string
	}{
		{"", "belongs to another user of this host: uid 65534, and this is uid 0", "need the job's secret, the same for all",
			[]string{"run", "--nnodes", "2", "--rdzv-endpoint", theirs, os.Args[0], "show", "RANK"}},
		{"", "belongs to another user of this host: uid 65534, and this is uid 0", "needs a secret, or certificates: give the job's own",
			[]string{"status", "--rdzv-endpoint", theirs}},
		{"", "belongs to another user of this host: uid 65534, and this is uid 0", "?any_owner=true behind the URL",
			[]string{"store", "keys", "--url", "tcp://" + theirs}},
		{"theirs", "serves its own user's processes alone, and this is uid 65534", "need the job's secret, the same for all",
			[]string{"run", "--nnodes", "2", "--rdzv-endpoint", ours, "/bin/sh"}},
		{"theirs", "serves its own user's processes alone, and this is uid 65534", "needs a secret, or certificates: give the job's own",
			[]string{"status", "--rdzv-endpoint", ours}},
		{"theirs", "serves its own user's processes alone, and this is uid 65534", "give both the job's secret",
			[]string{"store", "keys", "--url", "tcp://" + ours}},
	} {
		var end outcome
		if c.at == "" {
			end.Code, _, end.Stderr = weft(t, c.args...)
		} else {
			require.NoError(t, other.Ask(t.Context(), "weft", c.args, &end))
		}
		require.Equal(t, cli.CodeFailed, end.Code, "%v: %s", c.args, end.Stderr)
		require.Contains(t, end.Stderr, c.fault, "%v", c.args)
		require.Contains(t, end.Stderr, c.advice, "%v", c.args)
		require.NotContains(t, end.Stderr, "compare the tokens")
		require.NotContains(t, end.Stderr, "ClientConfig")
		if c.args[0] != "store" {
			require.NotContains(t, end.Stderr, "any_owner", "there is no such option of %s", c.args[0])
		}
	}
}

// stranger is a process of another user.
func stranger(t *testing.T) *proctest.Proc {
	return proctest.StartStranger(t, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "WEFT_TEST_PART=") })
}
