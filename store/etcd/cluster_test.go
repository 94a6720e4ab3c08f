package etcd

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/etcdtest"
)

// one is the member that tests share, each with a prefix of its own.
var one struct {
	sync.Mutex
	*etcdtest.Cluster
	prefixes int
}

func TestMain(m *testing.M) {
	code := m.Run()
	if one.Cluster != nil {
		one.Stop()
	}
	os.Exit(code)
}

// space is a part of the shared cluster that nothing else uses.
func space(t testing.TB) Config {
	t.Helper()
	one.Lock()
	defer one.Unlock()
	if one.Cluster == nil {
		one.Cluster = etcdtest.New(t, 1)
	}
	one.prefixes++
	return Config{Endpoints: one.Endpoints(), Prefix: fmt.Sprint("/test/", one.prefixes)}
}

// dial makes a store that is closed when t ends.
func dial(t testing.TB, cfg Config) *etcdStore {
	t.Helper()
	c, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	s, err := Dial(c, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s.(*etcdStore)
}
