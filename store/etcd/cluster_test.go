package etcd

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
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

// newCluster starts n members on free ports of the loopback. With arguments for TLS clients come by that.
func newCluster(path string, n int, args ...string) (*cluster, error) {
	scheme := "http://"
	if len(args) > 0 {
		scheme = "https://"
	}
	base := "" // memory, if there is such a folder: nothing is lost there by kill -9, and a sync is free
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		base = "/dev/shm"
	}
	dir, err := os.MkdirTemp(base, "weft-etcd-")
	if err != nil {
		return nil, err
	}
	cl := &cluster{path: path, dir: dir}
	var peers []string
	for i := range n {
		m := &member{name: fmt.Sprint("m", i), dir: filepath.Join(dir, fmt.Sprint(i))}
		if m.client, err = freePort(); err == nil {
			m.peer, err = freePort()
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
	return cl, nil
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func (m *member) start(path string) error {
	m.cmd = exec.Command(path, m.args...)
	m.cmd.Env = []string{"ETCD_UNSUPPORTED_ARCH=" + os.Getenv("ETCD_UNSUPPORTED_ARCH")}
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
	path := binary(t)
	one.Lock()
	defer one.Unlock()
	if one.cluster == nil {
		cl, err := newCluster(path, 1)
		require.NoError(t, err)
		one.cluster = cl
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
