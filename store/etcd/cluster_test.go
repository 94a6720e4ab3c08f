package etcd

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// needed is the variable that makes an absent etcd a failure, for where it must be there.
const needed = "WEFT_NEED_ETCD"

// binary is etcd's path. Where there is none it skips t, unless the environment says that there must be one.
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

// member is a process of etcd. It is gone when the tests are over.
type member struct {
	name         string
	client, peer string // host:port
	dir          string
	args         []string

	cmd *exec.Cmd
}

// cluster is some members that know one another.
type cluster struct {
	path    string
	dir     string
	members []*member
}

// newCluster starts n members on free ports of the loopback. With arguments for TLS clients come by that. The ports may be
// taken before etcd has them; then it starts others.
func newCluster(t testing.TB, n int, args ...string) *cluster {
	t.Helper()
	path := binary(t)
	for try := 1; ; try++ {
		cl, err := tryCluster(path, n, args)
		if err == nil {
			return cl
		}
		require.Less(t, try, 3, "etcd does not start: %v", err)
	}
}

func tryCluster(path string, n int, args []string) (*cluster, error) {
	scheme := "http://"
	if len(args) > 0 {
		scheme = "https://"
	}
	dir, err := os.MkdirTemp(folder(), "weft-etcd-")
	if err != nil {
		return nil, err
	}
	cl := &cluster{path: path, dir: dir}
	on := host()
	var peers []string
	for i := range n {
		m := &member{name: fmt.Sprint("m", i), dir: filepath.Join(dir, fmt.Sprint(i))}
		if m.client, err = freePort(on); err == nil {
			m.peer, err = freePort(on)
		}
		if err != nil {
			return nil, err
		}
		cl.members = append(cl.members, m)
		peers = append(peers, fmt.Sprintf("%s=http://%s", m.name, m.peer))
	}
	for _, m := range cl.members {
		m.args = append([]string{
			"--name", m.name, "--data-dir", m.dir, "--logger", "zap", "--log-outputs", "stderr",
			"--listen-client-urls", scheme + m.client, "--advertise-client-urls", scheme + m.client,
			"--listen-peer-urls", "http://" + m.peer, "--initial-advertise-peer-urls", "http://" + m.peer,
			"--initial-cluster", strings.Join(peers, ","),
			"--max-request-bytes", fmt.Sprint(16 << 20), "--heartbeat-interval", "50", "--election-timeout", "500",
		}, args...)
		if err := m.start(path); err != nil {
			cl.stop()
			return nil, err
		}
	}
	for _, m := range cl.members {
		if err := m.ready(); err != nil {
			cl.stop()
			return nil, err
		}
	}
	return cl, nil
}

// patient bounds what a member does in a second where the machine is idle.
const patient = time.Minute

// ready returns when a member takes connections, which it does when it has a leader.
func (m *member) ready() error {
	c, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	for n := 0; ; n++ {
		conn, err := new(net.Dialer).DialContext(c, "tcp", m.client)
		if err == nil {
			return conn.Close()
		}
		if m.ended() || !sleep(c, backoff(n)) {
			return fmt.Errorf("%s is not there: %w; its log ends with: %s", m.name, err, m.log())
		}
	}
}

// ended says whether the process has.
func (m *member) ended() bool {
	log := m.log()
	return strings.Contains(log, `"level":"fatal"`)
}

// log is the end of what the process has said.
func (m *member) log() string {
	text, _ := os.ReadFile(m.dir + ".log")
	return string(text[max(0, len(text)-2000):])
}

func freePort(on string) (string, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(on, "0"))
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func (m *member) start(path string) error {
	m.cmd = exec.Command(path, m.args...)
	m.cmd.Env = []string{"ETCD_UNSUPPORTED_ARCH=" + runtime.GOARCH}
	log, err := os.OpenFile(m.dir+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	m.cmd.Stderr = log
	dieWithUs(m.cmd)
	return m.cmd.Start()
}

// end ends the process by sig and waits for it.
func (m *member) end(sig syscall.Signal) {
	if m.cmd == nil || m.cmd.Process == nil {
		return
	}
	_ = m.cmd.Process.Signal(sig)
	_ = m.cmd.Wait()
	m.cmd = nil
}

func (cl *cluster) stop() {
	for _, m := range cl.members {
		m.end(syscall.SIGKILL)
	}
	os.RemoveAll(cl.dir)
}

func (cl *cluster) endpoints() []string {
	var out []string
	for _, m := range cl.members {
		out = append(out, m.client)
	}
	return out
}

// one is the member that tests share, each with a prefix of its own.
var one struct {
	sync.Mutex
	*cluster
	prefixes int
}

func TestMain(m *testing.M) {
	code := m.Run()
	if one.cluster != nil {
		one.stop()
	}
	os.Exit(code)
}

// space is a part of the shared cluster that nothing else uses.
func space(t testing.TB) Config {
	t.Helper()
	one.Lock()
	defer one.Unlock()
	if one.cluster == nil {
		one.cluster = newCluster(t, 1)
	}
	one.prefixes++
	return Config{Endpoints: one.endpoints(), Prefix: fmt.Sprint("/test/", one.prefixes)}
}

// dial makes a store that is closed when t ends.
func dial(t testing.TB, cfg Config) *Store {
	t.Helper()
	c, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	s, err := Dial(c, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}
