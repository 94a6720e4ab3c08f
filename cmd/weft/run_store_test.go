package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
)

func TestAJobsStoreHasTLSWhereOthersCouldReachIt(t *testing.T) {
	for _, c := range []struct {
		addr, plain, variable string
		want                  bool
	}{
		{"127.0.0.1", "auto", "", false}, {"localhost", "auto", "", false}, {"::1", "auto", "", false},
		{"10.0.0.7", "auto", "", true}, {"node7", "auto", "", true}, {"node7", "always", "", true}, {"node7", "auto", "0", false},
		{"127.0.0.1", "never", "", true}, {"127.0.0.1", "auto", "1", true},
	} {
		t.Setenv(rpc.StoreTLSVariable, c.variable)
		cfg, variable, err := (&runFlags{masterAddr: c.addr, storePlain: c.plain}).store(jobSecret, rpc.NoJob, 1)
		require.NoError(t, err)
		require.Equal(t, c.want, cfg.TLS != nil, "%+v", c)
		require.Equal(t, c.want, variable == "WEFT_STORE_TLS=1", "%+v", c)
		require.Equal(t, !c.want, variable == "WEFT_STORE_TLS=0", "%+v", c)
		require.Equal(t, c.plain == "always", cfg.Plain == store.PlainAlways)
	}
	_, _, err := (&runFlags{storePlain: "some"}).store(jobSecret, rpc.NoJob, 1)
	require.ErrorContains(t, err, `--store-plain: expected auto, always or never, got "some"`)
	t.Setenv(rpc.StoreTLSVariable, "perhaps")
	_, _, err = (&runFlags{storePlain: "auto"}).store(jobSecret, rpc.NoJob, 1)
	require.ErrorContains(t, err, `$WEFT_STORE_TLS: expected 1 or 0, got "perhaps"`)
}

func TestWorkersMeetInAStoreThatTakesNoPlainText(t *testing.T) {
	for _, plain := range []string{"never", "auto"} {
		code, stdout, stderr := weft(t, "run", "--nproc-per-node", "2", "--store-plain", plain, "--no-prefix", os.Args[0], "join")
		require.Zero(t, code, stderr)
		require.Equal(t, map[string]string{"never": "plain refused\nplain refused\n", "auto": "plain taken\nplain taken\n"}[plain], stdout)
	}
}
