package job

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic/agent"
	"github.com/weft-project/weft/elastic/rdzv"
)

func TestTheWholeGroupStartsAgainWhereTheProgramIsPythonsAndAWorkerElse(t *testing.T) {
	for args, want := range map[string]rdzv.Policy{
		"python3 x": rdzv.RestartGroup, "/usr/bin/python3.11 x": rdzv.RestartGroup, "bin/digits": rdzv.ReplaceWorker, "sh python": rdzv.ReplaceWorker,
		"--restart-policy worker python3 x": rdzv.ReplaceWorker, "--restart-policy group sh": rdzv.RestartGroup,
	} {
		cmd, f := &cobra.Command{}, new(Flags)
		f.Register(cmd)
		cmd.Flags().SetInterspersed(false)
		require.NoError(t, cmd.ParseFlags(strings.Fields(args)))
		spec, err := f.Spec(cmd.Flags().Args())
		require.NoError(t, err)
		require.Equal(t, want, spec.Policy, args)
	}
}

func TestEveryFlagOfTorchrunIsKnownInBothSpellingsAndByTheEnvironment(t *testing.T) {
	names := "nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf standalone max-restarts monitor-interval start-method role module no-python " +
		"run-path log-dir redirects tee local-ranks-filter node-rank master-addr master-port local-addr logs-specs event-log-handler numa-binding " +
		"signals-to-handle shutdown-timeout virtual-local-rank duplicate-stdout-filters duplicate-stderr-filters"
	for name := range strings.FieldsSeq(names) {
		f, cmd := &Flags{}, &cobra.Command{}
		f.Register(cmd)
		flag := cmd.Flags().Lookup(strings.ReplaceAll(name, "-", "_"))
		require.NotNil(t, flag, name)
		value := map[string]string{"int": "7", "bool": "true", "string": "x", "float64": "7"}[flag.Value.Type()]
		t.Setenv("PET_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_")), value)
		require.NoError(t, f.FromEnvironment(cmd))
		require.Equal(t, value, cmd.Flags().Lookup(name).Value.String(), name)
	}
	cmd := &cobra.Command{}
	new(Flags).Register(cmd)
	for short, name := range map[string]string{"r": "redirects", "t": "tee", "m": "module"} {
		require.Equal(t, name, cmd.Flags().ShorthandLookup(short).Name)
	}
}

func TestGPUsAreCountedByWhatTheEnvironmentAndTheDriverShow(t *testing.T) {
	four := fstest.MapFS{"dev/nvidia0": {}, "dev/nvidia1": {}, "dev/nvidia2": {}, "dev/nvidia3": {}, "dev/nvidiactl": {}, "dev/nvidia-uvm": {}}
	driver := fstest.MapFS{"proc/driver/nvidia/gpus/0000:01:00.0/information": {}, "proc/driver/nvidia/gpus/0000:02:00.0/information": {}}
	for _, c := range []struct {
		root    fstest.MapFS
		visible string
		want    int
	}{
		{four, "unset", 4}, {driver, "unset", 2}, {fstest.MapFS{}, "unset", 0}, {fstest.MapFS{}, "0,1", 0},
		{four, "", 0}, {four, "-1", 0}, {four, "2", 1}, {four, "0,3", 2}, {four, "1,9,2", 1}, {four, "0,-1,2", 1}, {four, "none", 0},
		{four, "GPU-8932f937, MIG-1", 2}, {driver, "0,1,2", 2},
	} {
		got := gpus(c.root, func(string) (string, bool) { return c.visible, c.visible != "unset" })
		require.Equal(t, c.want, got, "%+v", c)
	}
	t.Setenv("CUDA_VISIBLE_DEVICES", "")
	_, err := parseNproc("gpu", four)
	require.ErrorContains(t, err, "--nproc-per-node gpu: this machine shows no GPU")
	n, err := parseNproc("auto", four)
	require.NoError(t, err)
	require.Equal(t, runtime.NumCPU(), n)
	t.Setenv("CUDA_VISIBLE_DEVICES", "1,2,3")
	for _, s := range []string{"gpu", "cuda", "auto"} {
		n, err = parseNproc(s, four)
		require.NoError(t, err)
		require.Equal(t, 3, n)
	}
}

func TestWhereOutputGoesFollowsTheFlags(t *testing.T) {
	logs := func(f Flags) agent.Logs {
		l, err := f.logs()
		require.NoError(t, err)
		return l
	}
	both := agent.Stdout | agent.Stderr
	require.Equal(t, agent.Logs{}, logs(Flags{}))
	require.Equal(t, agent.Logs{Dir: "d", Tee: agent.Selection{All: both}}, logs(Flags{logDir: "d"}), "who names a folder wants something in it")
	require.Equal(t, agent.Logs{Dir: "d"}, logs(Flags{logDir: "d", tee: "0"}))
	require.Equal(t, agent.Logs{Dir: "d", Redirect: agent.Selection{All: agent.Stderr}, Show: []int{0, 2}}, logs(Flags{logDir: "d", redirects: "2", filter: "0, 2"}))
}

func TestLogsWithoutAFolderGoToTheUsersStateOrToOneThatNobodyCanGuess(t *testing.T) {
	mine, tmp, open := t.TempDir(), t.TempDir(), t.TempDir()
	require.NoError(t, os.Chmod(open, 0o777))
	none, loose := filepath.Join(mine, "none"), t.TempDir()
	require.NoError(t, os.MkdirAll(loose+"/weft/logs", 0o700))
	require.NoError(t, os.Chmod(loose+"/weft/logs", 0o777))
	t.Setenv("TMPDIR", tmp)
	inTmp := tmp + `/weft-logs-\d+`
	for _, c := range []struct{ state, home, want, note string }{
		{mine + "/state", none, mine + "/state/weft/logs", ""},
		{"", mine, mine + "/.local/state/weft/logs", ""}, {"relative", mine, mine + "/.local/state/weft/logs", ""},
		{"", none, inTmp, ""}, {"", "", inTmp, ""}, {"", ".", inTmp, ""}, {"", os.DevNull, inTmp, ""},
		{"", open, inTmp, open + " has mode 0777"}, {loose, mine, inTmp, "/weft/logs has mode 0777"}, {os.DevNull, mine, inTmp, "not a directory"},
	} {
		t.Setenv("XDG_STATE_HOME", c.state)
		t.Setenv("HOME", c.home)
		f := &Flags{tee: "3"}
		l, err := f.logs()
		require.NoError(t, err)
		if c.note == "" {
			require.Empty(t, f.Notes, "%+v", c)
		} else {
			require.Len(t, f.Notes, 1)
			require.Contains(t, f.Notes[0], "log files go to a new folder for temporary files, without --log-dir: ")
			require.Contains(t, f.Notes[0], c.note)
		}
		require.Regexp(t, "^"+c.want+"$", l.Dir, "%+v", c)
		info, err := os.Stat(l.Dir)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	}
	require.NoDirExists(t, none)
	t.Setenv("TMPDIR", open)
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv("HOME", "")
	_, err := (&Flags{tee: "3"}).logs()
	require.ErrorContains(t, err, "--log-dir: ")
	require.ErrorContains(t, err, open)
}
