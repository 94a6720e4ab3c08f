package etcd

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/store"
)

// lying is what etcd has under a prefix.
func lying(t *testing.T, s *etcdStore, prefix string) map[string]int64 {
	t.Helper()
	got, err := s.client.Get(t.Context(), prefix, clientv3.WithPrefix())
	require.NoError(t, err)
	out := map[string]int64{}
	for _, kv := range got.Kvs {
		out[string(kv.Key)] = kv.Lease
	}
	return out
}

// fill writes in every way there is.
func fill(t *testing.T, s *etcdStore) {
	t.Helper()
	c := t.Context()
	many := make([]store.Pair, 200) // more than one transaction takes flat
	for i := range many {
		many[i].Key = fmt.Sprint("many", i)
	}
	require.NoError(t, s.MultiSet(c, many[:100]...))
	require.NoError(t, s.Set(c, "set", nil))
	_, err := s.Add(c, "add", 1)
	require.NoError(t, err)
	_, err = s.CompareSet(c, "compare", nil, []byte("x"))
	require.NoError(t, err)
	require.NoError(t, s.Append(c, "append", []byte("x")))
	require.NoError(t, s.Push(c, "queue", nil))
	require.NoError(t, s.Push(c, "taken", nil))
	_, err = s.Pop(c, "taken")
	require.NoError(t, err)
	require.NoError(t, s.Barrier(c, "barrier", 1))
}

func TestTheLastStoreToBeClosedRemovesAllThatLiesUnderItsPrefix(t *testing.T) {
	leak.Check(t)
	cfg := space(t)
	other := dial(t, Config{Endpoints: cfg.Endpoints, Prefix: cfg.Prefix + "/other"})
	fill(t, other)
	others := len(lying(t, other, cfg.Prefix+"/other/"))
	cfg.Lease = time.Minute
	a, b := dial(t, cfg), dial(t, cfg)
	fill(t, a)
	for key, lease := range lying(t, a, cfg.Prefix+"/") {
		require.True(t, lease != 0 || strings.HasPrefix(key, cfg.Prefix+"/other/"), "%s would stay for ever", key)
	}
	require.NoError(t, a.Close())
	there, err := b.Check(t.Context(), "set", "add", "compare", "append", "queue", "many99", "barrier")
	require.NoError(t, err)
	require.True(t, there)
	require.NoError(t, b.Close())
	left := lying(t, other, cfg.Prefix+"/")
	require.Len(t, left, others, "%v", left)
}

func TestWhatStoresLeaveThatDieIsGoneAfterTheLease(t *testing.T) {
	cfg := space(t)
	watcher := dial(t, cfg)
	cfg.Lease = time.Second
	s := dial(t, cfg)
	fill(t, s)
	s.end(store.ErrClosed) // as a crash does
	_ = s.client.Close()
	s.tenancy.runs.Wait()
	require.Eventually(t, func() bool {
		for key := range lying(t, watcher, cfg.Prefix+"/") {
			if !strings.HasPrefix(key, cfg.Prefix+"/r/") { // receipts have a lease of their own
				return false
			}
		}
		return true
	}, 30*time.Second, 20*time.Millisecond)
}

func TestWhoComesWhenNoTenantIsLeftFindsNothing(t *testing.T) {
	cfg := space(t)
	watcher := dial(t, cfg)
	require.NoError(t, watcher.Set(t.Context(), "stays", nil))
	cfg.Lease = time.Minute
	a, dead := dial(t, cfg), dial(t, cfg)
	fill(t, a)
	there, err := dead.Check(t.Context(), "stays", "set")
	require.NoError(t, err)
	require.True(t, there, "what hangs on no lease is not for those who come to remove")
	dead.end(store.ErrClosed) // as a crash does
	_ = dead.client.Close()
	dead.tenancy.runs.Wait()
	require.NoError(t, a.Close())
	in := dial(t, cfg)
	there, err = in.Check(t.Context(), "set")
	require.NoError(t, err)
	require.True(t, there, "one who may live has it open")
	_, err = watcher.client.Revoke(t.Context(), dead.tenancy.own) // its time is over
	require.NoError(t, err)
	in.end(store.ErrClosed)
	in.tenancy.runs.Wait()
	_, err = watcher.client.Revoke(t.Context(), in.tenancy.own) // nor does this one live, which has renewed what all share
	require.NoError(t, err)
	there, err = watcher.Check(t.Context(), "set")
	require.NoError(t, err)
	require.True(t, there)
	late := dial(t, cfg)
	there, err = late.Check(t.Context(), "set")
	require.NoError(t, err)
	require.False(t, there)
}

func TestAStoreWhoseLeaseHasLapsedGoesOnWithAnother(t *testing.T) {
	cfg := space(t)
	cfg.Lease = time.Minute
	a, b := dial(t, cfg), dial(t, cfg)
	fill(t, a)
	fill(t, b)
	a.tenancy.mu.Lock()
	shared := a.tenancy.shared
	a.tenancy.mu.Unlock()
	_, err := a.client.Revoke(t.Context(), shared)
	require.NoError(t, err)
	there, err := b.Check(t.Context(), "set")
	require.NoError(t, err)
	require.False(t, there)
	fill(t, b)
	fill(t, a)
	require.NoError(t, a.Close())
	there, err = b.Check(t.Context(), "set")
	require.NoError(t, err)
	require.True(t, there)
}

func TestALeaseOfLessThanASecondIsRefused(t *testing.T) {
	require.ErrorContains(t, Config{Lease: time.Millisecond}.validate(), "a second at least")
	require.ErrorContains(t, Config{Lease: -time.Second}.validate(), "a second at least")
}
