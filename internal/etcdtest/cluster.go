package etcdtest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/disttest/proctest"
)

// needed is the variable that makes an absent etcd a failure, for where it must be there.
const needed = "WEFT_NEED_ETCD"

// binary is etcd's path. Where there is none it skips t, unless the environment says that there
// must be one.
func binary(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("etcd")
	if err != nil && os.Getenv(needed) != "" {
		t.Fatalf("%s is set, but there is no etcd: %v", needed, err)
	}
	if err != nil {
		t.Skip("NOT TESTED: there is no etcd here (Debian: apt-get install etcd-server)")
	}
	return path
}

// Member is a process of etcd, or the place of one.
type Member struct {
	Name   string
	Client string // host:port for clients

	path, peer, dir string
	args            []string
	cmd             *exec.Cmd
	before          int // bytes of its log that are of processes before
}

// Cluster is some members that know one another.
type Cluster struct {
	Members []*Member
	dir     string
}

// New starts n members on addresses of the loopback. With arguments, which are for TLS, clients
// come by that. Should an address be taken, it starts others.
func New(t testing.TB, n int, args ...string) *Cluster {
	t.Helper()
	path := binary(t)
	for try := 1; ; try++ {
		cl, err := tryNew(path, n, args)
		if err == nil {
			return cl
		}
		require.Less(t, try, 3, "etcd does not start: %v", err)
	}
}

func tryNew(path string, n int, args []string) (*Cluster, error) {
	scheme := "http://"
	if len(args) > 0 {
		scheme = "https://"
	}
	dir, err := os.MkdirTemp(folder(), "weft-etcd-")
	if err != nil {
		return nil, err
	}
	cl := &Cluster{dir: dir}
	var peers []string
	for i := range n {
		m := &Member{Name: fmt.Sprint("m", i), path: path, dir: filepath.Join(dir, fmt.Sprint(i)), Client: proctest.Address(), peer: proctest.Address()}
		cl.Members = append(cl.Members, m)
		peers = append(peers, fmt.Sprintf("%s=http://%s", m.Name, m.peer))
	}
	for _, m := range cl.Members {
		m.args = append([]string{
			"--name", m.Name, "--data-dir", m.dir, "--logger", "zap", "--log-outputs", "stderr",
			"--listen-client-urls", scheme + m.Client, "--advertise-client-urls", scheme + m.Client,
			"--listen-peer-urls", "http://" + m.peer, "--initial-advertise-peer-urls", "http://" + m.peer,
			"--initial-cluster", strings.Join(peers, ","),
			"--max-request-bytes", fmt.Sprint(16 << 20), "--heartbeat-interval", "50", "--election-timeout", "500",
		}, args...)
		if err := m.Start(); err != nil {
			cl.Stop()
			return nil, err
		}
	}
	for _, m := range cl.Members {
		if err := m.Ready(); err != nil {
			cl.Stop()
			return nil, err
		}
	}
	return cl, nil
}

// Patience bounds what a member does in a second where the machine is idle.
const Patience = time.Minute

// Ready returns when a member takes connections, which it does when it has a leader. By its own
// word: another may be at its address.
func (m *Member) Ready() error {
	for giveUp := time.Now().Add(Patience); ; time.Sleep(10 * time.Millisecond) {
		switch {
		case !m.runs() || time.Now().After(giveUp):
			return fmt.Errorf("%s is not there; its log ends with: %s", m.Name, m.Log())
		case strings.Contains(m.said(), "serving client traffic"):
			return nil
		}
	}
}

// runs says whether the process is there.
func (m *Member) runs() bool {
	return m.cmd != nil && !over(m.cmd.Process) && !strings.Contains(m.said(), `"level":"fatal"`)
}

// said is what the process has said since it was started last.
func (m *Member) said() string {
	text, _ := os.ReadFile(m.dir + ".log")
	return string(text[min(m.before, len(text)):])
}

// Log is the end of what the process has said.
func (m *Member) Log() string {
	text, _ := os.ReadFile(m.dir + ".log")
	return string(text[max(0, len(text)-2000):])
}

// Start starts a member, for the first time or again with the data that it has.
func (m *Member) Start() error {
	if m.cmd != nil {
		return errors.New("it runs already")
	}
	cmd := exec.Command(m.path, m.args...)
	cmd.Env = []string{"ETCD_UNSUPPORTED_ARCH=" + runtime.GOARCH}
	log, err := os.OpenFile(m.dir+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	end, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	m.before = int(end)
	cmd.Stderr = log
	dieWithUs(cmd)
	if err := cmd.Start(); err != nil {
		return err
	}
	m.cmd = cmd
	return nil
}

// End ends the process by sig and waits for it.
func (m *Member) End(sig syscall.Signal) {
	if m.cmd == nil {
		return
	}
	_ = m.cmd.Process.Signal(sig)
	_ = m.cmd.Wait()
	m.cmd = nil
}

// Stop ends all members, and removes what they have.
func (cl *Cluster) Stop() {
	for _, m := range cl.Members {
		m.End(syscall.SIGKILL)
	}
	os.RemoveAll(cl.dir)
}

// Endpoints are the members' for clients.
func (cl *Cluster) Endpoints() []string {
	var out []string
	for _, m := range cl.Members {
		out = append(out, m.Client)
	}
	return out
}

// String is the members, and the ends of their logs, for who fails.
func (cl *Cluster) String() string {
	var b strings.Builder
	for _, m := range cl.Members {
		state := "has ended"
		if m.runs() {
			state = "runs"
		}
		fmt.Fprintf(&b, "%s at %s %s; its log ends with: %s\n", m.Name, m.Client, state, m.Log())
	}
	return b.String()
}
