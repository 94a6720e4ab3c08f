package main

import (
	"io"
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

// python makes a stand-in for the interpreter, which says with what it was called.
func python(t *testing.T) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "python")
	require.NoError(t, os.WriteFile(file, []byte("#!/bin/sh\necho \"python $*\"\n"), 0o755))
	t.Setenv("PYTHON_EXEC", file)
}

func TestScriptsAndModulesAreRunByPython(t *testing.T) {
	python(t)
	script := filepath.Join(t.TempDir(), "train.py")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\necho itself $*\n"), 0o755))
	other := strings.TrimSuffix(script, ".py")
	require.NoError(t, os.Rename(script, other))
	require.NoError(t, os.Link(other, script))
	for flags, want := range map[string]string{
		script + " --epochs 3":                  "python -u " + script + " --epochs 3\n",
		"--no-python " + script + " --epochs 3": "itself --epochs 3\n",
		"--run_path " + other + " -m":           "python -u " + other + " -m\n",
		other + " x":                            "itself x\n",
		"-m trainer.main ${local_rank}":         "python -u -m trainer.main 0\n",
		"--module trainer.main -r 3":            "python -u -m trainer.main -r 3\n",
	} {
		code, stdout, stderr := weft(t, append([]string{"run", "--no-prefix"}, strings.Fields(flags)...)...)
		require.Zero(t, code, stderr)
		require.Equal(t, want, stdout, flags)
	}
}

func TestTheWholeGroupStartsAgainWhereTheProgramIsPythonsAndAWorkerElse(t *testing.T) {
	for args, want := range map[string]rdzv.Policy{
		"python3 x": rdzv.RestartGroup, "/usr/bin/python3.11 x": rdzv.RestartGroup, "bin/digits": rdzv.ReplaceWorker, "sh python": rdzv.ReplaceWorker,
		"--restart-policy worker python3 x": rdzv.ReplaceWorker, "--restart-policy group sh": rdzv.RestartGroup,
	} {
		cmd, f := &cobra.Command{}, new(runFlags)
		f.register(cmd)
		cmd.Flags().SetInterspersed(false)
		require.NoError(t, cmd.ParseFlags(strings.Fields(args)))
		spec, err := f.spec(cmd.Flags().Args())
		require.NoError(t, err)
		require.Equal(t, want, spec.Policy, args)
	}
}

func TestTorchrunsFlagsThatChangeNothingAreTakenAndSaySo(t *testing.T) {
	t.Setenv("PET_EVENT_LOG_HANDLER", "console")
	code, stdout, stderr := weft(t, "run", "--start_method=fork", "--monitor-interval", "5", "--numa-binding=node", "--no-prefix", os.Args[0], "show", "RANK")
	require.Zero(t, code, stderr)
	require.Equal(t, "RANK=0\n", stdout)
	require.Equal(t, `weft: --start-method has no effect: every worker is a program that is started anew
weft: --monitor-interval has no effect: the end of a worker is seen when it happens
weft: --event-log-handler has no effect: what happens is told on stderr, and counted at --health-addr
weft: --numa-binding has no effect: the kernel places the workers; to bind them, start them under numactl
`, stderr)
}

func TestEveryFlagOfTorchrunIsKnownInBothSpellingsAndByTheEnvironment(t *testing.T) {
	names := "nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf standalone max-restarts monitor-interval start-method role module no-python " +
		"run-path log-dir redirects tee local-ranks-filter node-rank master-addr master-port local-addr logs-specs event-log-handler numa-binding " +
		"signals-to-handle shutdown-timeout virtual-local-rank duplicate-stdout-filters duplicate-stderr-filters"
	for name := range strings.FieldsSeq(names) {
		f, cmd := &runFlags{}, &cobra.Command{}
		f.register(cmd)
		flag := cmd.Flags().Lookup(strings.ReplaceAll(name, "-", "_"))
		require.NotNil(t, flag, name)
		value := map[string]string{"int": "7", "bool": "true", "string": "x", "float64": "7"}[flag.Value.Type()]
		t.Setenv("PET_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_")), value)
		require.NoError(t, f.fromEnvironment(cmd))
		require.Equal(t, value, cmd.Flags().Lookup(name).Value.String(), name)
	}
	for short, name := range map[string]string{"r": "redirects", "t": "tee", "m": "module"} {
		require.Equal(t, name, runCommand(host{}, io.Discard, io.Discard).Flags().ShorthandLookup(short).Name)
	}
}

func TestAFewFaultsOfTheCommandLineAreToldTogether(t *testing.T) {
	code, _, stderr := weft(t, "run", "--tee=5", "--redirects", "a:1", "--local_ranks_filter", "x", "--nproc-per-node=0", "gone.py")
	require.Equal(t, 2, code)
	for _, want := range []string{"--tee: expected 0", "--redirects: expected RANK:STREAMS", "--local-ranks-filter: ", "--nproc-per-node: ", `script "gone.py"`} {
		require.Contains(t, stderr, want)
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
	logs := func(f runFlags) agent.Logs {
		l, err := f.logs()
		require.NoError(t, err)
		return l
	}
	both := agent.Stdout | agent.Stderr
	require.Equal(t, agent.Logs{}, logs(runFlags{}))
	require.Equal(t, agent.Logs{Dir: "d", Tee: agent.Selection{All: both}}, logs(runFlags{logDir: "d"}), "who names a folder wants something in it")
	require.Equal(t, agent.Logs{Dir: "d"}, logs(runFlags{logDir: "d", tee: "0"}))
	require.Equal(t, agent.Logs{Dir: "d", Redirect: agent.Selection{All: agent.Stderr}, Show: []int{0, 2}}, logs(runFlags{logDir: "d", redirects: "2", filter: "0, 2"}))
}

func TestLogFilesAreWrittenAndTheirFolderIsTold(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "<${role_name} ${rank}> ")
	code, stdout, stderr := weft(t, "run", "--nproc-per-node", "2", "--log_dir", dir, "-r", "0:1", "-t", "1:1", "--rdzv-id", "j", os.Args[0], "show", "RANK")
	require.Zero(t, code, stderr)
	require.Equal(t, "<default 1> RANK=1\n", stdout)
	require.Regexp(t, `^weft: log files are in `+dir+`/j_\d+\n$`, stderr)
	files, err := filepath.Glob(filepath.Join(dir, "j_*/round_0/attempt_0/*/*"))
	require.NoError(t, err)
	require.Len(t, files, 2)
	for i, file := range files {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, []string{"RANK=0\n", "RANK=1\n"}[i], string(b))
	}
}

// The table of exit codes is in docs/launching.md.
func TestAProgramThatCannotBeStartedHasTheExitCodeOfWhenItWasFound(t *testing.T) {
	file := func(text string, mode os.FileMode) string {
		name := filepath.Join(t.TempDir(), "program")
		require.NoError(t, os.WriteFile(name, []byte(text), mode))
		return name
	}
	for why, c := range map[string]struct {
		program string
		code    int
	}{
		"not there":            {filepath.Join(t.TempDir(), "none"), 2},
		"not executable":       {file("#!/bin/sh\n", 0o644), 2},
		"no #! line":           {file("echo\n", 0o755), 126},
		"no such interpreter":  {file("#!/no/such\n", 0o755), 127},
		"went away":            {file("#!/bin/sh\nrm \"$0\"\nexit 1\n", 0o755), 127},
		"no longer executable": {file("#!/bin/sh\nchmod -x \"$0\"\nexit 1\n", 0o755), 126},
		"its own code":         {file("#!/bin/sh\nexit 9\n", 0o755), 9},
		"killed":               {file("#!/bin/sh\nkill -9 $$\n", 0o755), 137},
	} {
		code, _, stderr := weft(t, "run", "--max-restarts", "1", c.program)
		require.Equal(t, c.code, code, "%s: %s", why, stderr)
	}
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
		f := &runFlags{tee: "3"}
		l, err := f.logs()
		require.NoError(t, err)
		if c.note == "" {
			require.Empty(t, f.notes, "%+v", c)
		} else {
			require.Len(t, f.notes, 1)
			require.Contains(t, f.notes[0], "log files go to a new folder for temporary files, without --log-dir: ")
			require.Contains(t, f.notes[0], c.note)
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
	_, err := (&runFlags{tee: "3"}).logs()
	require.ErrorContains(t, err, "--log-dir: ")
	require.ErrorContains(t, err, open)
}
