package etcd

import (
	"context"
	"crypto/tls"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/store"
)

var schemes = map[string]store.Opener{"etcd": Open}

// parsed is what Open would dial for a URL.
func parsed(t *testing.T, url string, cfg store.OpenConfig) (out Config, err error) {
	t.Helper()
	cfg.Schemes = map[string]store.Opener{"etcd": func(_ context.Context, u store.URL, cfg store.OpenConfig) (store.Store, error) {
		out, err = FromURL(u, cfg)
		return store.NewMemory(), nil
	}}
	_, openErr := store.Open(t.Context(), url, cfg)
	require.NoError(t, openErr)
	return out, err
}

func TestAURLNamesMembersAndPrefix(t *testing.T) {
	const place = "?rank=0&world_size=2"
	for url, want := range map[string]Config{
		"etcd://" + place:                            {},
		"etcd:///" + place:                           {},
		"etcd://h1:2379,h2,h3" + place:               {Endpoints: []string{"h1:2379", "h2", "h3"}},
		"etcd://h1:2379,h2:2380/jobs/a%20b/" + place: {Endpoints: []string{"h1:2379", "h2:2380"}, Prefix: "/jobs/a b/"},
		"etcd://[::1]:1,[::2]/p" + place:             {Endpoints: []string{"[::1]:1", "[::2]"}, Prefix: "/p"},
		"etcd://me:p%40ss@localhost" + place:         {Endpoints: []string{"localhost"}, Username: "me", Password: "p@ss"},
		"etcd://h/p" + place + "&timeout=5":          {Endpoints: []string{"h"}, Prefix: "/p", Timeout: 5 * time.Second},
	} {
		got, err := parsed(t, url, store.OpenConfig{})
		require.NoError(t, err, url)
		require.Equal(t, want, got, url)
	}
	secure := &tls.Config{ServerName: "x"}
	got, err := parsed(t, "etcd://h"+place, store.OpenConfig{TLS: secure, Timeout: time.Minute, Limits: store.Limits{Key: 9}})
	require.NoError(t, err)
	require.Equal(t, Config{Endpoints: []string{"h"}, TLS: secure, Timeout: time.Minute, Limits: store.Limits{Key: 9}}, got)
}

func TestABadURLIsRefusedWithoutItsPassword(t *testing.T) {
	for _, host := range []string{"h:x", "h,,i", "me@h", "me:secret@h,i", "me:secret%zz@localhost"} {
		_, err := Open(t.Context(), store.URL{Scheme: "etcd", Host: host, Path: "/p"}, store.OpenConfig{})
		require.ErrorIs(t, err, store.ErrBadURL, host)
		require.NotContains(t, err.Error(), "secret")
	}
}

func FuzzAnyURLIsParsedOrRefused(f *testing.F) {
	f.Add("me:you@h1:2379,h2,h3", "/p")
	f.Fuzz(func(t *testing.T, host, path string) {
		cfg, err := FromURL(store.URL{Scheme: "etcd", Host: host, Path: path}, store.OpenConfig{})
		if err != nil {
			require.ErrorIs(t, err, store.ErrBadURL)
			return
		}
		for _, e := range cfg.withDefaults().Endpoints {
			require.NotEmpty(t, e)
			require.NotContains(t, e, "@")
			require.NotContains(t, e, "/")
		}
	})
}

func TestTheStoreOfAURLIsThere(t *testing.T) {
	cfg := space(t)
	r, err := store.Open(t.Context(), "etcd://"+cfg.Endpoints[0]+cfg.Prefix+"?rank=1&world_size=2", store.OpenConfig{Schemes: schemes})
	require.NoError(t, err)
	require.Equal(t, []int{1, 2}, []int{r.Rank, r.WorldSize})
	require.NoError(t, r.Store.Set(t.Context(), "k", []byte("v")))
	require.NoError(t, r.Close())
	v, err := dial(t, cfg).Get(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, "v", string(v))
}
