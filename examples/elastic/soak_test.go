//go:build soak

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/internal/etcdtest"
)

func killFirstWorker(w *crew, leader string) (string, error) {
	return "kill -9 of the first worker, of " + leader, w.killWorker(leader)
}

func TestTrainingGoesOnAfterWhateverHappensWithBothPolicies(t *testing.T) {
	long, short := []string{"--epochs", "30"}, []string{"--epochs", "10"}
	all, one := undisturbed(t, long...), undisturbed(t, short...)
	for _, policy := range []string{"worker", "group"} {
		for name, do := range map[string]func(*crew, string) (string, error){
			"a worker is killed": killWorker, "the first worker is killed": killFirstWorker, "an agent is stopped": stopAgent,
			"the first agent is killed": killFirstAgent, "an agent comes": addAgent, // as a fourth, which waits for a place that becomes free
		} {
			t.Run(policy+": "+name, func(t *testing.T) {
				got, out := played(t, policy, []event{{0.4, do}}, append(short, "--pace", "10ms")...)
				logStops(t, out)
				requireSame(t, one, got)
			})
		}
		t.Run(policy+": all of it", func(t *testing.T) {
			got, out := played(t, policy, []event{
				{0.1, killWorker}, {0.2, stopAgent}, {0.3, killFirstAgent}, {0.4, addAgent}, {0.5, addAgent}, {0.6, killFirstWorker},
				{0.65, killWorker}, {0.65, killFirstWorker}, {0.8, killFirstAgent}, {0.8, addAgent},
			}, append(long, "--pace", "10ms")...)
			logStops(t, out)
			requireSame(t, all, got)
		})
	}
}

// storeProcess is weft store serve with a journal.
func storeProcess(t *testing.T, weft, addr, journal string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(weft, "store", "serve", "--listen", addr, "--journal", journal)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	url, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "tcp://"+addr+"\n", url)
	return cmd
}

func builtWeft(t *testing.T) string {
	t.Helper()
	weft := filepath.Join(t.TempDir(), "weft")
	out, err := exec.Command("go", "build", "-o", weft, "github.com/weft-project/weft/cmd/weft").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return weft
}

func TestTrainingGoesOnWhileEachMemberOfTheEtcdInWhichTheAgentsMeetIsKilledInTurn(t *testing.T) {
	cl := etcdtest.New(t, 3)
	t.Cleanup(cl.Stop)
	member := func(i int, kill bool) func(*crew, string) (string, error) {
		return func(*crew, string) (string, error) {
			if kill {
				cl.Members[i].End(syscall.SIGKILL)
				return "kill -9 of etcd " + cl.Members[i].Name, nil
			}
			return "etcd " + cl.Members[i].Name + " is there again", errors.Join(cl.Members[i].Start(), cl.Members[i].Ready())
		}
	}
	weft, file := builtWeft(t), filepath.Join(t.TempDir(), "result.json")
	args := []string{"--epochs", "30"}
	command := append([]string{weft, "run", "--rdzv-backend", "etcd", "--rdzv-endpoint", strings.Join(cl.Endpoints(), ","), "--rdzv-id", "example", "--nnodes", "1:3",
		"--rdzv-conf", "last_call_timeout=1,keep_alive_timeout=3", "--max-restarts", "9", must(os.Executable())(t)}, quietly(file, append(args, "--pace", "20ms"))...)
	var said proctest.Output
	require.NoError(t, performAs(t.Context(), command, nil, []event{
		{0.05, member(0, true)}, {0.1, killWorker}, {0.2, member(0, false)}, {0.25, member(1, true)}, {0.3, stopAgent}, {0.4, addAgent}, {0.45, member(1, false)},
		{0.5, member(2, true)}, {0.55, killFirstAgent}, {0.7, addAgent}, {0.75, member(2, false)},
	}, &said), "%s", &said)
	requireNobody(t, said.String())
	logStops(t, said.String())
	requireSame(t, undisturbed(t, args...), readResult(t, file))
}

func TestTheStoreInWhichTheAgentsMeetMayBeKilledAndComeBackWithItsJournal(t *testing.T) {
	dir, addr := t.TempDir(), proctest.Address()
	weft := builtWeft(t)
	server := storeProcess(t, weft, addr, filepath.Join(dir, "journal"))
	args := []string{"--epochs", "10"}
	kill := func(*crew, string) (string, error) {
		err := server.Process.Kill()
		_ = server.Wait()
		return "kill -9 of the store", err
	}
	again := func(*crew, string) (string, error) {
		server = storeProcess(t, weft, addr, filepath.Join(dir, "journal"))
		return "the store is there again", nil
	}
	var said proctest.Output
	file := filepath.Join(dir, "result.json")
	require.NoError(t, performAt(t.Context(), addr, quietly(file, append(args, "--pace", "30ms")), "worker", []event{
		{0.1, killWorker}, {0.2, kill}, {0.4, again}, {0.5, killWorker}, {0.6, killFirstAgent}, {0.7, addAgent},
	}, &said), "%s", &said)
	requireNobody(t, said.String())
	logStops(t, said.String())
	require.Contains(t, said.String(), " is back after ")
	requireSame(t, undisturbed(t, args...), readResult(t, file))
}

func TestAJobWhoseRendezvousIsGoneWithItsAgentEndsWithAnErrorThatSaysSo(t *testing.T) {
	addr := proctest.Address()
	var said proctest.Output
	host := ""
	began := time.Now()
	err := performAt(t.Context(), addr, quietly("", []string{"--epochs", "300", "--pace", "10ms"}), "worker", []event{{0.01, func(w *crew, _ string) (string, error) {
		for name, a := range w.agents { // the one that listens there
			links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", a.cmd.Process.Pid))
			if err != nil {
				return "", err
			}
			for _, l := range links {
				if to, _ := os.Readlink(l); strings.HasPrefix(to, "socket:") && listens(t, addr, to) {
					host = name
				}
			}
		}
		return "kill -9 of " + host + ", which has the rendezvous", w.signal(host, syscall.SIGKILL)
	}}}, &said)
	require.Error(t, err, "%s", &said)
	require.Contains(t, said.String(), "which hosts the rendezvous, is gone")
	t.Logf("%v; after %v", err, time.Since(began))
	requireNobody(t, said.String())
}

// listens says whether a socket is the one that listens at an address.
func listens(t *testing.T, addr, socket string) bool {
	t.Helper()
	var a, b, c, d, port int
	_, err := fmt.Sscanf(addr, "%d.%d.%d.%d:%d", &a, &b, &c, &d, &port)
	require.NoError(t, err)
	table, err := os.ReadFile("/proc/net/tcp")
	require.NoError(t, err)
	inode := strings.TrimSuffix(strings.TrimPrefix(socket, "socket:["), "]")
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) > 9 && f[1] == fmt.Sprintf("%02X%02X%02X%02X:%04X", d, c, b, a, port) && f[3] == "0A" && f[9] == inode {
			return true
		}
	}
	return false
}
