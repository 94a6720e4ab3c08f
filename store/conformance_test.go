package store_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/storetest"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/store/journal"
)

func memory(*testing.T) func() store.Store {
	m := store.NewMemory()
	return func() store.Store { return m }
}

func file(t *testing.T) func() store.Store {
	path := filepath.Join(t.TempDir(), "store")
	return func() store.Store {
		f, err := store.NewFile(path, store.FileConfig{})
		require.NoError(t, err)
		return f
	}
}

func tcp(t *testing.T) func() store.Store { return served(t, store.ServerConfig{}) }

func journaled(t *testing.T) func() store.Store {
	path := filepath.Join(t.TempDir(), "journal")
	return served(t, store.ServerConfig{Journal: store.JournalConfig{Path: path, Sync: journal.Policy(100 * time.Millisecond)}})
}

func served(t *testing.T, cfg store.ServerConfig) func() store.Store {
	srv, err := store.Serve(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, srv.Close()) })
	return func() store.Store { return dial(t, store.ClientConfig{Addr: srv.Addr(), WorldSize: 4}) }
}

func dial(t *testing.T, cfg store.ClientConfig) *store.Client {
	t.Helper()
	cl, err := store.Dial(context.Background(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { cl.Close() })
	return cl
}

func prefixed(under func(*testing.T) func() store.Store) func(*testing.T) func() store.Store {
	return func(t *testing.T) func() store.Store {
		join := under(t)
		return func() store.Store {
			s := join()
			t.Cleanup(func() { s.Close() })
			return store.NewPrefix("in", store.NewPrefix("out", s))
		}
	}
}

func TestConformance(t *testing.T) {
	for name, open := range map[string]func(*testing.T) func() store.Store{
		"Memory": memory, "File": file, "TCP": tcp, "PrefixMemory": prefixed(memory), "PrefixTCP": prefixed(tcp),
		"Journaled": journaled,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t *testing.T) store.Store { return open(t)() })
			storetest.RunShared(t, open)
		})
	}
}
