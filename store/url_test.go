package store

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/store/internal/talktest"
)

func environment(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

func TestABadURLIsRefusedWithAllThatIsWrongWithIt(t *testing.T) {
	full := []string{"RANK", "0", "WORLD_SIZE", "1", "MASTER_ADDR", "127.0.0.1", "MASTER_PORT", "0"}
	for _, tc := range []struct {
		url  string
		env  []string
		want []string
	}{
		{"invalid://foo", nil, []string{`No rendezvous handler for "invalid://"`}},
		{"", nil, []string{"No rendezvous handler for"}},
		{"127.0.0.1:29500", nil, []string{`"127.0.0.1:29500" has no scheme; expected tcp://127.0.0.1:29500`}},
		{"://", nil, []string{"No rendezvous handler for"}},
		{"tcp://127.0.0.1?rank=0&world_size=1", nil, []string{"port number missing"}},
		{"tcp://127.0.0.1:23456?world_size=1", nil, []string{"rank parameter missing"}},
		{"tcp://127.0.0.1:23456?rank=0", nil, []string{"size parameter missing"}},
		{"tcp://", nil, []string{"host missing", "port number missing", "rank parameter missing", "size parameter missing"}},
		{"tcp://a:1/job?rank=0&world_size=1", nil, []string{`a tcp:// store has no path, and the url has "/job"`}},
		{"tcp://a:65536?rank=0&world_size=1", nil, []string{"the port must have a value from 0 to 65535"}},
		{"tcp://a:1?rank=2&world_size=2", nil, []string{"less than the world size 2, but is 2"}},
		{"tcp://a:1?rank=-1&world_size=2", nil, []string{"the rank must be at least 0"}},
		{"tcp://a:1?rank=0&world_size=0", nil, []string{"the world size must be positive, but is 0"}},
		{"tcp://a:1?rank=x&world_size=y", nil, []string{`the rank must be a number, but is "x"`, `the world size must be a number, but is "y"`}},
		{"file://?rank=0&world_size=1", nil, []string{"path missing"}},
		{"file://relative/path?rank=0&world_size=1", nil, []string{"path missing"}},
		{"file:///tmp/foo?world_size=1", nil, []string{"rank parameter missing"}},
		{"file:///tmp/foo?rank=0", nil, []string{"size parameter missing"}},
		{"env://", nil, []string{"environment variable RANK expected", "environment variable WORLD_SIZE expected",
			"environment variable MASTER_ADDR expected", "environment variable MASTER_PORT expected"}},
		{"env://", full[2:], []string{"environment variable RANK expected"}},
		{"env://?rank=1", full, []string{"less than the world size 1, but is 1"}},
		{"tcp://::1:29500?rank=0&world_size=1", nil, []string{"port number missing"}},
		{"tcp://a:1?rank=%zz", nil, []string{"the query"}},
		{"file:///%zz?rank=0&world_size=1", nil, []string{"the path"}},
		{"tcp://a:1?rank=0&world_size=1&timeout=soon", nil, []string{`the timeout must be a positive time such as 30s or 5m, but is "soon"`}},
		{"tcp://a:1?rank=0&world_size=1&timeout=-1", nil, []string{"the timeout must be a positive time"}},
		{"tcp://a:1?rank=0&world_size=1&any_owner=maybe", nil, []string{`any_owner must be true or false, but is "maybe"`}},
		{"tcp://a:1?rank=0&world_size=1&dialect=3", nil, []string{`unknown dialect "3"`}},
		{"env://", append([]string{"MASTER_PORT", "-1"}, full...), []string{`the port must have a value from 0 to 65535, but is "-1"`}},
	} {
		_, err := Open(t.Context(), tc.url, OpenConfig{LookupEnv: environment(tc.env...)})
		require.ErrorIs(t, err, ErrBadURL, tc.url)
		for _, part := range tc.want {
			require.ErrorContains(t, err, part, tc.url)
		}
	}
}

func TestAURLWithNodeSpecificArgumentsIsRefusedWhereTheCallerGivesThem(t *testing.T) {
	for _, url := range []string{"file://foo?rank=12&world_size=16", "tcp://a:1?rank=12", "env://?world_size=16"} {
		_, err := Open(t.Context(), url, OpenConfig{Rank: 12, WorldSize: 16})
		require.ErrorIs(t, err, ErrBadURL)
		require.ErrorContains(t, err, "has node-specific arguments")
	}
	_, err := Open(t.Context(), "file:///x", OpenConfig{Rank: 16, WorldSize: 16})
	require.ErrorContains(t, err, "less than the world size 16, but is 16")
	r, err := Open(t.Context(), "file://"+filepath.Join(t.TempDir(), "s"), OpenConfig{Rank: 12, WorldSize: 16})
	require.NoError(t, err)
	require.Equal(t, []int{12, 16}, []int{r.Rank, r.WorldSize})
	require.NoError(t, r.Close())
}

func TestASchemeOfTheCallersOwnGetsTheURLTakenApart(t *testing.T) {
	var got URL
	cfg := OpenConfig{Schemes: map[string]Opener{
		"here": func(_ context.Context, u URL, cfg OpenConfig) (Store, error) {
			got = u
			require.Equal(t, 5*time.Second, cfg.Timeout)
			return NewMemory(), nil
		},
		"fails": func(context.Context, URL, OpenConfig) (Store, error) { return nil, ErrUnreachable },
		"empty": func(context.Context, URL, OpenConfig) (Store, error) { return nil, nil },
	}}
	r, err := Open(t.Context(), "here://h1:1,h2:2,[::1]:3/a%20b/c?rank=1&world_size=3&timeout=5&x=y", cfg)
	require.NoError(t, err)
	require.Equal(t, []int{1, 3}, []int{r.Rank, r.WorldSize})
	require.Equal(t, []any{"here", "h1:1,h2:2,[::1]:3", "/a b/c", "y", 1, 3},
		[]any{got.Scheme, got.Host, got.Path, got.Query.Get("x"), got.Rank, got.WorldSize})
	require.NoError(t, r.Close())
	_, err = Open(t.Context(), "here://", cfg)
	require.ErrorContains(t, err, "rank parameter missing")
	_, err = Open(t.Context(), "fails://?rank=0&world_size=1", cfg)
	require.ErrorIs(t, err, ErrUnreachable)
	_, err = Open(t.Context(), "empty://?rank=0&world_size=1", cfg)
	require.ErrorContains(t, err, "neither a store nor an error")
	_, err = Open(t.Context(), "file:///x", OpenConfig{Schemes: map[string]Opener{"file": nil}})
	require.ErrorContains(t, err, "must not have file://")
}

func TestAGuestNeedsNoRankAndTellsNobody(t *testing.T) {
	s := served(t, ServerConfig{})
	host, port, err := net.SplitHostPort(s.Addr())
	require.NoError(t, err)
	for _, url := range []string{"tcp://" + s.Addr(), "tcp://" + s.Addr() + "?rank=0&world_size=9", "env://"} {
		r, err := Open(t.Context(), url, OpenConfig{Guest: true, LookupEnv: environment("MASTER_ADDR", host, "MASTER_PORT", port)})
		require.NoError(t, err)
		require.Equal(t, []int{-1, 0}, []int{r.Rank, r.WorldSize})
		n, err := r.Store.NumKeys(t.Context())
		require.NoError(t, err)
		require.Zero(t, n)
		require.NoError(t, r.Close())
	}
	path := filepath.Join(t.TempDir(), "s")
	r, err := Open(t.Context(), "file://"+path, OpenConfig{Guest: true})
	require.NoError(t, err)
	require.NoError(t, r.Close())
}

func TestAURLMayNameTheDialectAndTheTimeout(t *testing.T) {
	port := freePort(t)
	meet(t, func(rank int) string {
		return fmt.Sprintf("tcp://127.0.0.1:%s?rank=%d&world_size=2&dialect=2.1&timeout=7", port, rank)
	}, func(int) OpenConfig { return OpenConfig{LookupEnv: environment()} })
	p := parse("tcp://a:1?rank=0&world_size=1&dialect=2.6&timeout=90s", OpenConfig{})
	require.Empty(t, p.errs)
	require.Equal(t, Dialect22, p.dialect)
	require.Equal(t, 90*time.Second, p.timeout)

	r, err := Open(t.Context(), "tcp://127.0.0.1:0?rank=0&world_size=1&dialect=2.1&timeout=0.2", OpenConfig{LookupEnv: environment()})
	require.NoError(t, err)
	defer r.Close()
	nc, err := net.Dial("tcp", r.server.Addr())
	require.NoError(t, err)
	defer nc.Close()
	says := talktest.NewRaw(t, nc)
	says.Send("07 02 00*7 '/x'") // a DELETE in 2.1, and a WATCH before
	says.Expect("00*8")
	require.ErrorContains(t, r.Store.Wait(t.Context(), "k"), "wait timeout after 200ms")
}

func FuzzURL(f *testing.F) {
	for _, u := range []string{"tcp://a:1?rank=0&world_size=1", "env://", "file:///x?rank=0&world_size=2&timeout=3", "x://a,b/c"} {
		f.Add(u)
	}
	cfg := OpenConfig{LookupEnv: environment("MASTER_PORT", "1", "MASTER_ADDR", "a", "RANK", "0", "WORLD_SIZE", "1"),
		Schemes: map[string]Opener{"x": nil}}
	f.Fuzz(func(t *testing.T, raw string) {
		p := parse(raw, cfg)
		for _, err := range p.errs {
			require.ErrorIs(t, err, ErrBadURL)
		}
		if p.errs == nil {
			require.True(t, p.Rank >= 0 && p.Rank < p.WorldSize)
			require.True(t, p.Scheme == "x" || p.Scheme == "file" || p.host != "" && p.port != "")
			require.GreaterOrEqual(t, p.timeout, time.Duration(0))
		}
	})
}

// freePort is one that nobody listens on, and that the system gives to nobody.
func freePort(t *testing.T) string {
	_, port, err := net.SplitHostPort(proctest.Address())
	require.NoError(t, err)
	return port
}

// meet opens the store at two ranks, has them exchange a value, and closes the host last.
func meet(t *testing.T, url func(rank int) string, cfg func(rank int) OpenConfig) {
	c, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	type opened struct {
		Rendezvous
		err error
	}
	other := make(chan opened)
	go func() {
		r, err := Open(c, url(1), cfg(1))
		other <- opened{r, err}
	}()
	r0, err := Open(c, url(0), cfg(0))
	r1 := <-other
	require.NoError(t, err)
	require.NoError(t, r1.err)
	require.Equal(t, []int{0, 2, 1, 2}, []int{r0.Rank, r0.WorldSize, r1.Rank, r1.WorldSize})
	require.NoError(t, r0.Store.Set(c, "k", []byte("v")))
	v, err := r1.Store.Get(c, "k")
	require.NoError(t, err)
	require.Equal(t, "v", string(v))
	require.NoError(t, r1.Close())
	require.NoError(t, r0.Close())
	require.NoError(t, r0.Close())
	require.ErrorIs(t, r0.Store.Set(c, "k", nil), ErrClosed)
}

func TestRanksMeetOverTCP(t *testing.T) {
	port := freePort(t)
	meet(t, func(rank int) string {
		return fmt.Sprintf("tcp://127.0.0.1:%s?rank=%d&world_size=2&use_libuv=0", port, rank)
	}, func(int) OpenConfig { return OpenConfig{LookupEnv: environment()} })
}

func TestRanksMeetByTheEnvironment(t *testing.T) {
	port := freePort(t)
	meet(t, func(int) string { return "env://" }, func(rank int) OpenConfig {
		return OpenConfig{LookupEnv: environment("RANK", fmt.Sprint(rank), "WORLD_SIZE", "2",
			"MASTER_ADDR", "127.0.0.1", "MASTER_PORT", port)}
	})
}

func TestRanksMeetInAFileThatIsRemovedAtTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	meet(t, func(rank int) string { return fmt.Sprintf("file://%s?rank=%d&world_size=2", path, rank) },
		func(int) OpenConfig { return OpenConfig{} })
	_, err := os.Stat(path)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestWithAnAgentsStoreEveryRankIsAClient(t *testing.T) {
	agent := served(t, ServerConfig{})
	host, port, err := net.SplitHostPort(agent.Addr())
	require.NoError(t, err)
	env := []string{"TORCHELASTIC_USE_AGENT_STORE", "True", "MASTER_ADDR", host, "MASTER_PORT", port,
		"WORLD_SIZE", "2", "RANK", "0"}
	r, err := Open(t.Context(), "env://", OpenConfig{LookupEnv: environment(env...)})
	require.NoError(t, err, "rank 0 waits for nobody and listens nowhere")
	require.NoError(t, r.Store.Set(t.Context(), "k", nil))
	require.NoError(t, r.Close())

	env[1] = "False"
	_, err = Open(t.Context(), "env://", OpenConfig{LookupEnv: environment(env...)})
	require.ErrorContains(t, err, "failed to listen", "without the agent rank 0 would host")
}

func TestAHostWhoseWorkersDoNotComeGivesUpAndFreesThePort(t *testing.T) {
	port := freePort(t)
	c, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	url := "tcp://localhost:" + port + "?rank=0&world_size=2"
	_, err := Open(c, url, OpenConfig{LookupEnv: environment(), Bind: "127.0.0.1"})
	require.ErrorIs(t, err, ErrTimeout)
	require.ErrorContains(t, err, "1/2 clients joined")
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	require.NoError(t, err)
	require.NoError(t, l.Close())
}
