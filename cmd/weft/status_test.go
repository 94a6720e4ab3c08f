package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic/agent"
	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

// meets is a node of a job at a server, in this process.
func meets(t *testing.T, addr, job string, cfg rdzv.Config) (*rdzv.Rendezvous, *store.Server) {
	r, server, _ := meetsWith(t, nil, addr, job, cfg)
	return r, server
}

// meetsWith is meets in a store with TLS, if there is any. It gives the node's client, too.
func meetsWith(t *testing.T, secure *tls.Config, addr, job string, cfg rdzv.Config) (*rdzv.Rendezvous, *store.Server, store.Store) {
	server, err := store.Serve(store.ServerConfig{Addr: addr, TLS: secure})
	require.NoError(t, err)
	st, err := store.Dial(t.Context(), store.ClientConfig{Addr: addr, TLS: secure})
	require.NoError(t, err)
	cfg.Silence, cfg.LastCall = 3*time.Second, -1
	r, err := rdzv.Open(t.Context(), agent.RendezvousOf(job, st), cfg, rdzv.Node{ID: "me", Addr: "here", Slots: 3}, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = r.Leave(context.Background(), "")
		_ = st.Close()
		_ = server.Close()
	})
	return r, server, st
}

// jobAsJSON is some of what status --json prints.
type jobAsJSON struct {
	Job, Endpoint, Phase, Leader string
	Nodes                        []nodeAsJSON
}

type nodeAsJSON struct {
	ID, Addr, State string
	Since           float64 `json:"since_s"`
	Rank, Workers   int
	First           int     `json:"first_worker"`
	Heard           float64 `json:"heard_s"`
	Late            bool
}

func TestStatusTellsAJobFromWhatIsNone(t *testing.T) {
	t.Parallel()
	at := proctest.Address()
	var token []string // flags
	status := func(args ...string) (int, string, string) {
		return weft(t, slices.Concat([]string{"status", "--rdzv-endpoint", at}, token, args)...)
	}
	code, _, stderr := status()
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "nothing listens at "+at)
	require.NotContains(t, stderr, "weft store")

	token = []string{"--token-file", secretFile(t, jobSecret)}
	id, err := transport.IdentityFromToken(jobSecret, "j", "me", nil)
	require.NoError(t, err)
	proof, err := agent.Proof(jobSecret, "j")
	require.NoError(t, err)
	r, _, _ := meetsWith(t, id.StoreTLS(), at, "j", rdzv.Config{Min: 1, Proof: proof})
	require.Equal(t, rdzv.Place, (<-r.News).Kind)
	code, stdout, stderr := status("--rdzv-id", "j", "--nnodes=7", "--max-restarts", "2")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "job j at "+at+", for ")
	require.Regexp(t, `\n0 +in +\d+s +<2s +0-2 +0 +here +me, leads\n$`, stdout)

	code, stdout, _ = status("--rdzv_id=j", "--json")
	require.Zero(t, code)
	var out jobAsJSON
	require.NoError(t, json.Unmarshal([]byte(stdout), &out))
	require.Equal(t, []string{"j", at, "complete", "me"}, []string{out.Job, out.Endpoint, out.Phase, out.Leader})
	require.Equal(t, []nodeAsJSON{{ID: "me", Addr: "here", State: "in", Since: out.Nodes[0].Since, Workers: 3, Heard: 2}}, out.Nodes)

	code, stdout, stderr = status("--rdzv-id", "k")
	require.Equal(t, 1, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "another job's id")

	token[1] = secretFile(t, otherSecret)
	code, _, stderr = status("--rdzv-id", "j")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "the job there has another secret than this")
	token = nil // and without a secret
	at = proctest.Address()
	r, _, st := meetsWith(t, nil, at, "j", rdzv.Config{Min: 1})
	require.Equal(t, rdzv.Place, (<-r.News).Kind)
	code, stdout, stderr = status("--rdzv-id", "k")
	require.Equal(t, 3, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "no job k meets at "+at+"; there are j (--rdzv-id)")
	require.NoError(t, st.Set(t.Context(), "rdzv/x/summary", []byte("a summary")))
	code, _, stderr = status("--rdzv-id", "x")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "is of another version of weft, or something else")
}

func TestStatusThatIsRefusedConnectsOnceAndSaysWhatToGive(t *testing.T) {
	id, err := transport.IdentityFromToken(jobSecret, "j", "me", nil)
	require.NoError(t, err)
	for _, x := range []struct {
		name, secret, want string
		serves             *tls.Config
	}{
		{"no secret", "", "give the job's own secret, by --token-file or $WEFT_TOKEN", id.StoreTLS()},
		{"another secret", otherSecret, "give the job's own secret, by --token-file or $WEFT_TOKEN", id.StoreTLS()},
		{"a secret, where the job has none", jobSecret, "Where it has none, give none", nil},
	} {
		t.Run(x.name, func(t *testing.T) {
			plain := store.PlainNever
			if x.serves == nil {
				plain = store.PlainAuto
			}
			server, err := store.Serve(store.ServerConfig{TLS: x.serves, Plain: plain})
			require.NoError(t, err)
			defer server.Close()
			t.Setenv("WEFT_TOKEN", x.secret)
			code, _, stderr := weft(t, "status", "--rdzv-id", "j", "--rdzv-endpoint", server.Addr())
			require.Equal(t, 1, code)
			require.Contains(t, stderr, x.want)
			require.Equal(t, 2, strings.Count(stderr, "\n"), stderr)
			require.EqualValues(t, 1, server.Stats().Accepted)
		})
	}
}

func TestStatusOfAJobWhoseLeaderIsSilentSaysSo(t *testing.T) {
	t.Parallel()
	at := proctest.Address()
	server, err := store.Serve(store.ServerConfig{Addr: at})
	require.NoError(t, err)
	defer server.Close()
	st, err := store.Dial(t.Context(), store.ClientConfig{Addr: at})
	require.NoError(t, err)
	defer st.Close()
	c, crash := context.WithCancel(t.Context())
	r, err := rdzv.Open(c, agent.RendezvousOf("none", st), rdzv.Config{Min: 1, Silence: 3 * time.Second, LastCall: -1}, rdzv.Node{ID: "me", Slots: 1}, nil)
	require.NoError(t, err)
	require.Equal(t, rdzv.Place, (<-r.News).Kind)
	crash()
	for range r.News {
	}
	code, stdout, stderr := weft(t, "status", "--rdzv-endpoint", at)
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "NO WORD of its leader for 2s")
	require.Contains(t, stdout, "me, leads")
}

func TestStatusOfAnEndpointThatIsNoStoreSaysSo(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close() // it takes connections and says nothing
	code, _, stderr := weft(t, "status", "--rdzv-endpoint", l.Addr().String())
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "what listens there hangs up or says nothing")
}

func TestStatusExplainsAWrongCommandLine(t *testing.T) {
	for flags, want := range map[string]string{
		"":                                      "expected where the job meets: --rdzv-endpoint",
		"--rdzv-endpoint h me":                  "unknown command",
		"--rdzv-backend zoo --rdzv-endpoint h":  `expected store (or c10d), etcd or static, got "zoo"`,
		"--rdzv-backend etcd --rdzv-endpoint h": "needs --rdzv-id",
		"--rdzv-backend static":                 "missing: --master-addr",
		"--rdzv-endpoint localhost --token-file /nowhere/token":      "--token-file",
		"--rdzv-endpoint localhost --store-plain sometimes":          "--store-plain",
		"--rdzv-endpoint localhost --rdzv-conf keep_alive_timeout=x": "expected a number of seconds",
	} {
		code, stdout, stderr := weft(t, append([]string{"status"}, strings.Fields(flags)...)...)
		require.Equal(t, 2, code, "%s: %s", flags, stderr)
		require.Contains(t, stderr, want, flags)
		require.Empty(t, stdout)
	}
}

func TestAWatchTellsWhatHappensUntilTheJobIsOver(t *testing.T) {
	t.Parallel()
	at := proctest.Address()
	r, _ := meets(t, at, "none", rdzv.Config{Min: 1, Max: 2, MaxRestarts: 1})
	require.Equal(t, rdzv.Place, (<-r.News).Kind)
	out := &proctest.Output{}
	codes := make(chan int, 1)
	go func() { codes <- here([]string{"status", "--rdzv-endpoint", at, "--watch"}, out, out) }()
	out.Await(t, "round 0 is complete with 1 of 1 to 2 nodes", 1)
	st, err := store.Dial(t.Context(), store.ClientConfig{Addr: at})
	require.NoError(t, err)
	defer st.Close()
	other, err := rdzv.Open(t.Context(), agent.RendezvousOf("none", st), rdzv.Config{Min: 1, Max: 2, MaxRestarts: 1, Silence: 3 * time.Second, LastCall: -1},
		rdzv.Node{ID: "you", Addr: "there", Slots: 1}, nil)
	require.NoError(t, err)
	for a := range other.News {
		if a.Kind == rdzv.Place {
			break
		}
	}
	out.Await(t, "s: you has rank 1\n", 1)
	out.Await(t, "round 1 is complete with 2 of 1 to 2 nodes", 1)
	require.NoError(t, other.Leave(t.Context(), "had enough"))
	out.Await(t, "s: you: left: had enough\n", 1)
	require.Equal(t, rdzv.Place, (<-r.News).Kind)
	require.Equal(t, rdzv.Place, (<-r.News).Kind)
	r.Done(2)
	require.Equal(t, rdzv.Finished, (<-r.News).Kind)
	require.Zero(t, <-codes, out.String())
	require.Contains(t, out.String(), "ended well 0s ago: every node is done")
}

func TestWhoStopsToWatchDoesSoWithoutAnError(t *testing.T) {
	at := proctest.Address()
	r, _ := meets(t, at, "none", rdzv.Config{Min: 1})
	require.Equal(t, rdzv.Place, (<-r.News).Kind)
	out := &proctest.Output{}
	codes := make(chan int, 1)
	go func() { codes <- here([]string{"status", "--rdzv-endpoint", at, "--watch", "--json"}, out, out) }()
	out.Await(t, `"phase":"complete"`, 1)
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGINT))
	require.Zero(t, <-codes, out.String())
	var one jobAsJSON
	require.NoError(t, json.NewDecoder(bytes.NewBufferString(out.String())).Decode(&one))
}
