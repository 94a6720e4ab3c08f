package job

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/cmd/weft/internal/etcdlogin"
	"github.com/weft-project/weft/internal/disttest/hostile"
	"github.com/weft-project/weft/internal/private"
	"github.com/weft-project/weft/store"
)

func TestJobsShareAClusterOfEtcdByTheirIds(t *testing.T) {
	f := &Flags{policy: "worker", backend: "etcd-v2", endpoint: "etcd://me@h1,h2:7,[::1]/a/b/", runID: "job/7", conf: "protocol=https,read_timeout=9"}
	t.Setenv(etcdlogin.PasswordVariable, "wo:rd")
	m, err := f.meeting(2)
	require.NoError(t, err)
	t.Setenv(etcdlogin.PasswordVariable, "")
	require.Equal(t, "h1:2379,h2:7,[::1]:2379/a/b", m.endpoint, "what is shown has no password")
	cfg := m.etcd.config
	require.Equal(t, []string{"h1:2379", "h2:7", "[::1]:2379"}, cfg.Endpoints)
	require.Equal(t, "/a/b/rdzv/job%2F7", cfg.Prefix)
	require.Equal(t, [2]string{"me", "wo:rd"}, [2]string{cfg.Username, cfg.Password})
	require.NotNil(t, cfg.TLS)
	require.Equal(t, 9*time.Second, cfg.Timeout)
	require.Equal(t, 5*time.Minute, cfg.Lease)
	require.Equal(t, []string{"h1", "h2", "::1"}, f.hosts())
	f = &Flags{policy: "worker", backend: "etcd", endpoint: "localhost", runID: "j", conf: "keep_alive_timeout=60"}
	m, err = f.meeting(1)
	require.NoError(t, err)
	require.Equal(t, "localhost:2379/weft", m.endpoint)
	require.Equal(t, "/weft/rdzv/j", m.etcd.config.Prefix)
	require.Nil(t, m.etcd.config.TLS)
	require.Equal(t, 12*time.Minute, m.etcd.config.Lease, "longer than its machines go on without etcd")
}

func TestEtcdsLoginComesFromTheEndpointFilesAndVariablesAndWorkersDoNotGetIt(t *testing.T) {
	const word = "secretword"
	login := func(endpoint, conf string) (user, password string, err error) {
		m, err := (&Flags{policy: "worker", backend: "etcd", endpoint: endpoint, runID: "j", conf: conf}).meeting(1)
		return m.etcd.config.Username, m.etcd.config.Password, err
	}
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte(word+"\n"), 0o600))
	for _, x := range []struct{ endpoint, conf, user, password string }{
		{"m%65@h1,h2", "password_file=" + file, "", ""}, {"h1", "user=me,password_file=" + file, "", ""},
		{"h1", "", "me", word}, {"me@h1", "protocol=https", "other", word}, {"me@h1", "password_file=" + file, "", "another"},
	} {
		t.Setenv(etcdlogin.UserVariable, x.user)
		t.Setenv(etcdlogin.PasswordVariable, x.password)
		user, password, err := login(x.endpoint, x.conf)
		require.NoError(t, err, x)
		require.Equal(t, [2]string{"me", word}, [2]string{user, password}, x)
	}
	t.Setenv(etcdlogin.PasswordVariable, word)
	env, err := new(Flags).environ()
	require.NoError(t, err)
	require.NotContains(t, strings.Join(env, "\n"), word, "workers do not get it")
	t.Setenv(etcdlogin.UserVariable, "")
	_, _, err = login("h1", "")
	require.ErrorContains(t, err, "etcd's password is given, and no user")
	t.Setenv(etcdlogin.PasswordVariable, "")
	_, _, err = login("me@h1", "")
	require.ErrorContains(t, err, "etcd's user is given, and no password")
	require.NoError(t, os.Chmod(file, 0o644))
	_, _, err = login("me@h1", "password_file="+file)
	require.ErrorIs(t, err, private.ErrOpen)
	_, _, err = login("%zz@h1", "password_file="+file)
	require.ErrorIs(t, err, store.ErrBadURL)
}

func TestAKeyForEtcdThatOthersCanReadIsRefused(t *testing.T) {
	f, err := hostile.Certificates(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, os.Chmod(f.Key, 0o640))
	_, err = (&Flags{policy: "worker", backend: "etcd", endpoint: "h", runID: "j", conf: "protocol=https,ssl_cert=" + f.Cert + ",ssl_cert_key=" + f.Key}).meeting(1)
	require.ErrorIs(t, err, private.ErrOpen)
	require.ErrorContains(t, err, "run chmod 600 "+f.Key)
}
