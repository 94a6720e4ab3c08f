package job

import (
	"cmp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic/agent"
	"github.com/weft-project/weft/internal/secret/secrettest"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
)

var secretOfJob = secrettest.Token("job")

func TestAJobsStoresHaveTLSWhereverTheJobHasASecret(t *testing.T) {
	for _, c := range []struct {
		addr, local, plain, variable, token string
		nodes                               int
		tls, made                           bool
		err                                 string
	}{
		{addr: "127.0.0.1", nodes: 1, tls: true, made: true},
		{addr: "10.0.0.7", nodes: 1, tls: true, made: true},
		{addr: "10.0.0.7", nodes: 1, plain: "always", variable: "0", tls: true, made: true}, // only its guests' part is open
		{addr: "127.0.0.1", nodes: 2, token: secretOfJob, tls: true},
		{addr: "127.0.0.1", nodes: 2, token: secretOfJob, plain: "always", variable: "0", tls: true},
		{addr: "node7", nodes: 2, token: secretOfJob, tls: true},
		{addr: "localhost", nodes: 2}, {addr: "::1", nodes: 2}, {addr: "node7", nodes: 2, plain: "always"},
		{addr: "node7", nodes: 2, err: "several machines need the job's secret"},
		{addr: "127.0.0.1", local: "10.0.0.7", nodes: 2, err: "several machines need the job's secret"},
		{addr: "127.0.0.1", nodes: 2, plain: "never", err: "several machines need the job's secret"},
		{addr: "127.0.0.1", nodes: 2, variable: "1", err: "several machines need the job's secret"},
		{addr: "127.0.0.1", nodes: 1, plain: "some", err: `--store-plain: expected auto, always or never, got "some"`},
		{addr: "127.0.0.1", nodes: 1, variable: "perhaps", err: `$WEFT_STORE_TLS: expected 1 or 0, got "perhaps"`},
	} {
		t.Setenv(rpc.StoreTLSVariable, c.variable)
		t.Setenv("WEFT_TOKEN", "")
		f := &Flags{masterAddr: c.addr, localAddr: c.local, storePlain: cmp.Or(c.plain, "auto")}
		spec := agent.Spec{MaxNodes: c.nodes, Token: c.token}
		if c.nodes > 1 {
			spec.Endpoint = "127.0.0.1:29400"
		}
		spec, err := f.secure(spec)
		if c.err != "" {
			require.ErrorContains(t, err, c.err, "%+v", c)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.tls, spec.Store.TLS != nil, "%+v", c)
		require.Contains(t, spec.Env, map[bool]string{true: "WEFT_STORE_TLS=1", false: "WEFT_STORE_TLS=0"}[c.tls])
		require.Equal(t, c.made, spec.TokenMade, "%+v", c)
		require.Equal(t, c.tls, spec.Token != "", "the workers get the token that the store is of")
		require.Equal(t, c.plain == "always", spec.Store.Plain == store.PlainAlways)
	}
	t.Setenv(rpc.StoreTLSVariable, "")
	for _, endpoint := range []string{"node7:29400", "127.0.0.1:29400"} {
		spec, err := (&Flags{masterAddr: "node7", storePlain: "auto"}).secure(agent.Spec{MaxNodes: 1, Endpoint: endpoint})
		require.NoError(t, err)
		require.True(t, spec.TokenMade, "nobody else is to come")
	}
}
