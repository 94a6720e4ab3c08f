package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/internal/etcdtest"
)

func TestFlagsOfARendezvousInEtcdThatCannotBeAreToldTogether(t *testing.T) {
	for flags, want := range map[string][]string{
		"--nnodes 2":                        {"--rdzv-backend etcd needs --rdzv-endpoint HOST[:PORT],…[/PREFIX]", "--rdzv-backend etcd needs --rdzv-id"},
		"--rdzv-id j --rdzv-endpoint h:1:2": {`--rdzv-endpoint: `, `bad endpoint "h:1:2"`},
		"--rdzv-id j --rdzv-endpoint h,h:x": {`bad endpoint "h:x"`},
		"--rdzv-id j --rdzv-endpoint h --rdzv-conf protocol=ftp,ssl_cert=c":        {"protocol: expected http or https", "both of ssl_cert and ssl_cert_key"},
		"--rdzv-id j --rdzv-endpoint h --rdzv-conf color=red":                      {`unknown key "color"; there are join_timeout`, "ca_cert"},
		"--rdzv-id j --rdzv-endpoint h --rdzv-conf protocol=http,ca_cert=/nowhere": {"certificates are for protocol=https", "ca_cert: open /nowhere"},
		"--rdzv-id j --rdzv-endpoint h --rdzv-conf ca_cert=/dev/null":              {"/dev/null has no certificate in PEM"},
		"--rdzv-id j --rdzv-endpoint h --rdzv-conf cert=/nowhere,key=/nowhere":     {"ssl_cert and ssl_cert_key: open /nowhere"},
	} {
		code, _, stderr := weft(t, append(append([]string{"run", "--rdzv-backend", "etcd"}, strings.Fields(flags)...), os.Args[0], "show", "RANK")...)
		require.Equal(t, 2, code, "%s: %s", flags, stderr)
		for _, part := range want {
			require.Contains(t, stderr, part, flags)
		}
	}
}

// launchers are several "weft run" of one job, each a process.
type launchers struct {
	t    *testing.T
	args []string
	env  []string
	proctest.Output
	cmds []*exec.Cmd
}

// launch starts one more, which ends with the test at the latest.
func (l *launchers) launch(extra ...string) *exec.Cmd {
	l.t.Helper()
	cmd := exec.Command(os.Args[0], slices.Concat([]string{"run"}, l.args, extra)...)
	cmd.Env = append(os.Environ(), "WEFT_TEST_PART=weft", "GORACE=atexit_sleep_ms=0", "WEFT_TOKEN="+jobSecret)
	cmd.Env = append(cmd.Env, l.env...)
	cmd.Stdout, cmd.Stderr = &l.Output, &l.Output
	require.NoError(l.t, cmd.Start())
	l.cmds = append(l.cmds, cmd)
	l.t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return cmd
}

// pids are the workers that have said that they are there, by rank, the last of each.
func (l *launchers) pids() map[int]int {
	out := map[int]int{}
	for _, m := range regexp.MustCompile(`(?m)^\[(\d+)\] here (\d+)$`).FindAllStringSubmatch(l.String(), -1) {
		rank, _ := strconv.Atoi(m[1])
		out[rank], _ = strconv.Atoi(m[2])
	}
	return out
}

// under are the keys of etcd that begin with a prefix.
func under(t *testing.T, cl *etcdtest.Cluster, prefix string) (out []string) {
	client, err := clientv3.New(clientv3.Config{Endpoints: cl.Endpoints(), Context: t.Context(),
		Logger: clientv3.NewCtxClient(t.Context()).GetLogger()}) // the silent logger
	require.NoError(t, err)
	defer client.Close()
	c, cancel := context.WithTimeout(t.Context(), etcdtest.Patience)
	defer cancel()
	got, err := client.Get(c, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	require.NoError(t, err, cl)
	for _, kv := range got.Kvs {
		out = append(out, string(kv.Key))
	}
	return out
}

func TestAJobThatMeetsInEtcdGoesOnWhileEachOfItsMembersIsKilledInTurn(t *testing.T) {
	cl := etcdtest.New(t, 3)
	t.Cleanup(cl.Stop)
	done := t.TempDir() + "/done"
	jobs := map[string]*launchers{}
	for _, id := range []string{"a", "b"} { // two jobs share the cluster
		jobs[id] = &launchers{t: t, args: []string{"--rdzv-backend", "etcd", "--rdzv-id", id, "--rdzv-endpoint", strings.Join(cl.Endpoints(), ",") + "/test",
			"--nnodes", "2", "--max-restarts", "1", "--rdzv-conf", "keep_alive_timeout=6", os.Args[0], "stay", done}}
		jobs[id].launch()
		jobs[id].launch()
	}
	before := map[string]map[int]int{}
	for id, l := range jobs {
		l.Await(t, "place 1 of 2", 1)
		l.Await(t, "] here ", 2)
		before[id] = l.pids()
	}
	status := func(id string) (int, string, string) {
		return weft(t, "status", "--rdzv-backend", "etcd-v2", "--rdzv-id", id, "--rdzv-endpoint", strings.Join(cl.Endpoints(), ",")+"/test")
	}
	code, stdout, stderr := status("a")
	require.Zero(t, code, stderr)
	require.Equal(t, 2, strings.Count(stdout, "  in  "), stdout)
	require.Contains(t, stdout, "round 0 is complete with 2 of 2 nodes")
	code, _, stderr = status("c")
	require.Equal(t, 3, code)
	require.Contains(t, stderr, "no job c meets at ")
	for i, m := range cl.Members {
		m.End(syscall.SIGKILL)
		if i == 1 { // a worker is replaced while a member is away
			require.NoError(t, syscall.Kill(before["a"][1], syscall.SIGKILL))
			jobs["a"].Await(t, "] here ", 3)
		}
		require.NotEmpty(t, under(t, cl, "/test/rdzv/b/"), "the others have a leader")
		require.NoError(t, m.Start())
		require.NoError(t, m.Ready())
	}
	after := jobs["a"].pids()
	require.NotEqual(t, before["a"][1], after[1])
	after[1] = before["a"][1]
	require.Equal(t, before["a"], after)
	require.Equal(t, before["b"], jobs["b"].pids())

	cl.Members[0].End(syscall.SIGKILL) // one alone cannot do anything
	cl.Members[1].End(syscall.SIGKILL)
	for _, l := range jobs {
		l.Await(t, "/test is out of reach (", 2)
	}
	require.NoError(t, cl.Members[0].Start())
	require.NoError(t, cl.Members[1].Start())
	for id, l := range jobs {
		l.Await(t, "/test is back after ", 2)
		require.Equal(t, 2, len(l.pids()), id)
	}
	require.Equal(t, before["b"], jobs["b"].pids())
	require.Equal(t, before["a"][0], jobs["a"].pids()[0])

	require.NoError(t, os.WriteFile(done, nil, 0o600))
	for id, l := range jobs {
		for _, cmd := range l.cmds {
			require.NoError(t, cmd.Wait(), "%s: %s", id, l)
		}
	}
	require.Empty(t, under(t, cl, "/test"), "the jobs leave nothing")
	code, _, _ = status("a")
	require.Equal(t, 3, code)
	require.Empty(t, under(t, cl, "/test"), "nor does who looks")
}

func TestAJobThatMeetsInEtcdOutlivesAnyOfItsMachines(t *testing.T) {
	cl := etcdtest.New(t, 1)
	t.Cleanup(cl.Stop)
	done := t.TempDir() + "/done"
	args := []string{"--rdzv-backend", "etcd", "--rdzv-id", "j", "--rdzv-endpoint", cl.Endpoints()[0],
		"--nnodes", "1:2", "--rdzv-conf", "keep_alive_timeout=3,last_call_timeout=20", os.Args[0], "stay", done}
	machines := [2]*launchers{{t: t, args: args}, {t: t, args: args}}
	for _, m := range machines {
		m.launch()
	}
	for _, m := range machines {
		m.Await(t, "] here ", 1)
	}
	first, other := machines[0], machines[1]
	if first.pids()[0] == 0 {
		first, other = other, first
	}
	before := other.pids()
	require.NoError(t, first.cmds[0].Process.Kill())
	require.Error(t, first.cmds[0].Wait())
	other.Await(t, "place 0 of 1", 1)
	require.Equal(t, before, other.pids(), "its worker goes on")
	code, stdout, stderr := weft(t, "status", "--rdzv-backend", "etcd", "--rdzv-id", "j", "--rdzv-endpoint", cl.Endpoints()[0])
	require.Zero(t, code, stderr)
	require.Regexp(t, `(?m)^0 +in .* leads$`, stdout)
	require.Regexp(t, `(?m)^0 +lost +\d+s +no word from it for 3s \(127`, stdout)
	require.NoError(t, os.WriteFile(done, nil, 0o600))
	require.NoError(t, other.cmds[0].Wait(), other)
}

func TestAJobInEtcdIsToldThatItsIdIsOfAnEarlierRunWhileThatIsThere(t *testing.T) {
	cl := etcdtest.New(t, 1)
	t.Cleanup(cl.Stop)
	done := t.TempDir() + "/done"
	args := []string{"--rdzv-backend", "etcd", "--rdzv-id", "j", "--rdzv-endpoint", cl.Endpoints()[0],
		"--nnodes", "1:2", "--rdzv-conf", "keep_alive_timeout=3,last_call_timeout=20", os.Args[0], "stay", done}
	l := &launchers{t: t, args: args}
	killed, other := l.launch(), l.launch()
	l.Await(t, "] here ", 2)
	require.NoError(t, killed.Process.Kill())
	require.Error(t, killed.Wait())
	l.Await(t, "place 0 of 1", 1)
	require.NoError(t, os.WriteFile(done, nil, 0o600))
	require.NoError(t, other.Wait(), l)
	code, _, stderr := weft(t, append([]string{"run"}, args...)...)
	require.Equal(t, 1, code, stderr)
	require.Regexp(t, `(?m)^weft: this id is of an earlier run: job j at \S+ ended \d+s ago, before this node came \(the rendezvous is closed: every node is done\); `+
		`what it has left there is gone 5 minutes after its end at most: until then take another id \(--rdzv-id\)$`, stderr)
}

func TestALauncherSaysThatItWaitsForEtcd(t *testing.T) {
	t.Parallel()
	address := proctest.Address()
	code, _, stderr := weft(t, "run", "--rdzv-backend", "etcd", "--rdzv-id", "j", "--rdzv-endpoint", address, "--rdzv-conf", "join_timeout=6", os.Args[0], "show", "RANK")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, fmt.Sprintf("weft: waiting for the store at %s/weft, job j, 3 s of 6 s: nothing listens there, or not yet (connection refused)\n", address))
	require.Contains(t, stderr, "weft: the rendezvous at "+address+"/weft: nothing listens there, or not yet (connection refused)\n")
}
