package job

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

func TestTheFirstOfSlurmsHosts(t *testing.T) {
	for list, want := range map[string]string{
		"node7": "node7", "a,b": "a", "gpu[003-007,12],login": "gpu003", "n[5,2]": "n5", "rack[1-2]node[30-40].site": "rack1node30.site",
	} {
		got, err := firstHost(list)
		require.NoError(t, err, list)
		require.Equal(t, want, got)
	}
	for _, list := range []string{"", ",a", "n[", "n[]", "n[a-b]", "n]1", "n[1", "a b", "[-3]", "host:7"} {
		_, err := firstHost(list)
		require.ErrorContains(t, err, "expected hosts such as", list)
	}
}

func FuzzFirstHost(f *testing.F) {
	for _, s := range []string{"gpu[003-007,12],login", "rack[1-2]node[30-40]", "[[", "a]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, list string) {
		host, err := firstHost(list)
		if err == nil {
			require.NotEmpty(t, host)
			require.NotContains(t, host, "[")
			require.LessOrEqual(t, len(host), len(list))
		}
	})
}

func TestSlurmsEnvironmentFillsInWhatIsNotGiven(t *testing.T) {
	env := map[string]string{"SLURM_JOB_ID": "77", "SLURM_NNODES": "3", "SLURM_NODEID": "2", "SLURM_JOB_NODELIST": "gpu[4-6]", "SLURM_LOCALID": "0"}
	fill := func(args ...string) (*Flags, error) {
		f, cmd := &Flags{}, &cobra.Command{}
		f.Register(cmd)
		require.NoError(t, cmd.ParseFlags(args))
		return f, f.FromSlurm(cmd, func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	}
	f, err := fill("--from_slurm")
	require.NoError(t, err)
	require.Equal(t, []any{"3", "slurm-77", 2, true, "gpu4:29400"}, []any{f.nnodes, f.runID, f.nodeRank, f.NodeRankGiven, f.endpoint})
	f, err = fill("--from-slurm", "--nnodes=2:3", "--run-id=mine", "--rdzv-endpoint=other:1", "--node-rank=0")
	require.NoError(t, err)
	require.Equal(t, []any{"2:3", "mine", 0, "other:1"}, []any{f.nnodes, f.runID, f.nodeRank, f.endpoint})
	f, err = fill("--from-slurm", "--rdzv-backend=etcd")
	require.NoError(t, err)
	require.Empty(t, f.endpoint, "no machine of the job hosts it")
	f, err = fill()
	require.NoError(t, err)
	require.Equal(t, "1", f.nnodes, "nothing is taken that was not asked for")
	env["SLURM_LOCALID"], env["SLURM_JOB_NODELIST"] = "1", ""
	delete(env, "SLURM_NODEID")
	_, err = fill("--from-slurm")
	for _, want := range []string{"srun --ntasks-per-node=1", "$SLURM_NODEID is not set", "$SLURM_JOB_NODELIST is not set"} {
		require.ErrorContains(t, err, want)
	}
}
