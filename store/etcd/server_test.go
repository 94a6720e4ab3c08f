package etcd

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/internal/etcdtest"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/store"
)

// watchers is how many watches a member has.
func watchers(t *testing.T, endpoint string) int {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // which leaves no goroutines
	resp, err := client.Get("http://" + endpoint + "/metrics")
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	m := regexp.MustCompile(`(?m)^etcd_debugging_mvcc_watcher_total (\S+)$`).FindSubmatch(text)
	require.NotNil(t, m)
	n, err := strconv.Atoi(string(m[1]))
	require.NoError(t, err)
	return n
}

// eventually asks again until it is so.
func eventually(t *testing.T, so func() bool, what string) {
	t.Helper()
	c, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for n := 0; !so(); n++ {
		require.True(t, sleep(c, backoff(n)), what)
	}
}

func TestWhatIsCancelledLeavesNothingInEtcd(t *testing.T) {
	cfg := space(t)
	leak.Check(t)
	s := dial(t, cfg)
	c, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range 5 {
		key := fmt.Sprint("never ", i)
		for _, wait := range []func() error{
			func() error { return s.Wait(c, key, "nor this") },
			func() error { _, err := s.Get(c, key); return err },
			func() error { _, err := s.MultiGet(c, key, "nor this"); return err },
			func() error { _, err := s.Pop(c, key); return err },
			func() error { return s.Barrier(c, fmt.Sprint("barrier ", i), 2) },
			func() error {
				w, err := s.Watch(c, key)
				if err == nil {
					for range w.C {
					}
					err = w.Err()
				}
				return err
			},
		} {
			wg.Go(func() {
				if err := wait(); !strings.Contains(fmt.Sprint(err), "context canceled") {
					t.Errorf("not cancelled: %v", err)
				}
			})
		}
	}
	eventually(t, func() bool { return watchers(t, cfg.Endpoints[0]) == 5*7 }, "a Wait watches values and queues, the others one key")
	cancel()
	wg.Wait()
	eventually(t, func() bool { return watchers(t, cfg.Endpoints[0]) == 0 }, "watches stay")
}

func TestACloseTakesTheReceiptsAway(t *testing.T) {
	cfg := space(t)
	s, other := dial(t, cfg), dial(t, cfg)
	keys := func() []string {
		got, err := other.client.Get(t.Context(), cfg.Prefix+"/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		require.NoError(t, err)
		var out []string
		for _, kv := range got.Kvs {
			out = append(out, strings.TrimPrefix(string(kv.Key), cfg.Prefix))
		}
		return out
	}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 5 {
				if _, err := s.Add(t.Context(), fmt.Sprint("k", i), 1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, s.Push(t.Context(), "q", nil))
	receipts := slices.DeleteFunc(keys(), func(k string) bool { return !strings.HasPrefix(k, "/r/") })
	require.NotEmpty(t, receipts)
	require.LessOrEqual(t, len(receipts), 4, "one for each call that runs at the same time")
	require.NoError(t, s.Close())
	require.Equal(t, []string{"/q/1/q/0000000000000001", "/t/q", "/v/k0", "/v/k1", "/v/k2", "/v/k3"}, keys())
}

func TestEtcdSaysThatHistoryIsCompacted(t *testing.T) {
	cfg := space(t)
	s := dial(t, cfg)
	c, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, v := range []string{"1", "2", "3"} {
		require.NoError(t, s.Set(c, "k", []byte(v)))
	}
	got, err := s.client.Get(c, s.names.value("k"))
	require.NoError(t, err)
	_, err = s.client.Compact(c, got.Header.Revision)
	require.NoError(t, err)
	require.ErrorIs(t, s.events(c, 1, isPut, s.names.presence("k")...), rpctypes.ErrCompacted)

	life, over := context.WithCancel(c)
	sent, done := make(chan store.Change, 10), make(chan error)
	go func() { done <- s.report(life, &history{key: "k"}, 1, func(ch store.Change) { sent <- ch }) }()
	require.Equal(t, store.Change{Kind: store.Created, Key: "k", New: []byte("3"), Dropped: -1}, <-sent)
	require.NoError(t, s.Set(c, "k", []byte("4")))
	require.Equal(t, store.Change{Kind: store.Updated, Key: "k", Old: []byte("3"), New: []byte("4")}, <-sent)
	over()
	require.ErrorIs(t, <-done, context.Canceled)
}

func TestMoreKeysThanEtcdTakesAreRefusedWithoutEffect(t *testing.T) {
	s := dial(t, space(t))
	pairs := make([]store.Pair, 80000)
	for i := range pairs {
		pairs[i].Key = fmt.Sprint(i)
	}
	err := s.MultiSet(t.Context(), pairs...)
	require.ErrorIs(t, err, store.ErrTooLarge)
	require.NotErrorIs(t, err, store.ErrUncertain)
	require.ErrorContains(t, err, "--max-txn-ops")
	n, err := s.NumKeys(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
	require.NoError(t, s.MultiSet(t.Context(), pairs[:10000]...))
	keys, err := s.ListKeys(t.Context())
	require.NoError(t, err)
	require.Len(t, keys, 10000)
	require.True(t, slices.IsSorted(keys))
}

func TestAClusterThatIsNotThereIsUnreachable(t *testing.T) {
	leak.Check(t)
	address := proctest.Address()
	c, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := Dial(c, Config{Endpoints: []string{address}})
	require.ErrorIs(t, err, store.ErrUnreachable)
	require.ErrorIs(t, err, store.ErrTimeout)
	require.ErrorContains(t, err, "connection refused")
	require.ErrorContains(t, err, address)
	c, cancel = context.WithCancel(t.Context())
	time.AfterFunc(time.Millisecond, cancel)
	_, err = Dial(c, Config{Endpoints: []string{address}})
	require.ErrorIs(t, err, context.Canceled)
}

// certificate makes files of a self-signed certificate.
func certificate(t *testing.T) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"etcd"},
		IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &secret.PublicKey, secret)
	require.NoError(t, err)
	secretDER, err := x509.MarshalECPrivateKey(secret)
	require.NoError(t, err)
	cert, key = filepath.Join(t.TempDir(), "cert"), filepath.Join(t.TempDir(), "key")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "EC PRIVATE KEY", Bytes: secretDER}} {
		var b bytes.Buffer
		require.NoError(t, pem.Encode(&b, block))
		require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))
	}
	pool = x509.NewCertPool()
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool.AddCert(parsed)
	return cert, key, pool
}

func TestOverTLSAndWithAPassword(t *testing.T) {
	cert, key, pool := certificate(t)
	cl := etcdtest.New(t, 1, "--cert-file", cert, "--key-file", key)
	t.Cleanup(cl.Stop)
	cfg := Config{Endpoints: cl.Endpoints(), TLS: &tls.Config{RootCAs: pool, ServerName: "etcd"}}
	admin := dial(t, cfg)
	c, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, step := range []func() error{
		func() error { _, err := admin.client.UserAdd(c, "root", "secret"); return err },
		func() error { _, err := admin.client.UserGrantRole(c, "root", "root"); return err },
		func() error { _, err := admin.client.UserAdd(c, "me", "word"); return err },
		func() error { _, err := admin.client.RoleAdd(c, "ours"); return err },
		func() error {
			_, err := admin.client.RoleGrantPermission(c, "ours", "/ours/", clientv3.GetPrefixRangeEnd("/ours/"), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := admin.client.UserGrantRole(c, "me", "ours"); return err },
		func() error { _, err := admin.client.AuthEnable(c); return err },
	} {
		require.NoError(t, step())
	}
	_, err := admin.Add(c, "k", 1)
	require.Error(t, err, "nobody may do this any more")
	require.NotErrorIs(t, err, context.DeadlineExceeded)

	cfg.Username, cfg.Password, cfg.Prefix = "me", "word", "/ours"
	s := dial(t, cfg)
	for want := range int64(3) {
		n, err := s.Add(c, "k", 1)
		require.NoError(t, err)
		require.Equal(t, want+1, n)
	}
	require.NoError(t, s.Wait(c, "k"))
	w, err := s.Watch(c, "k")
	require.NoError(t, err)
	require.NoError(t, s.Set(c, "k", []byte("v")))
	require.Equal(t, "v", string((<-w.C).New))
	w.Stop()

	theirs := cfg
	theirs.Prefix = "/theirs"
	_, err = Dial(c, theirs)
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
	cfg.Password = "wrong"
	_, err = Dial(c, cfg)
	require.ErrorIs(t, err, rpctypes.ErrAuthFailed)

	brief, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = Dial(brief, Config{Endpoints: cl.Endpoints(), TLS: &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "etcd"}})
	require.ErrorIs(t, err, store.ErrUnreachable)
	require.ErrorContains(t, err, "certificate")
}
