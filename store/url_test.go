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
		{"invalid://foo", nil, []string{"No rendezvous handler for invalid://"}},
		{"", nil, []string{"No rendezvous handler for"}},
		{"://", nil, []string{"missing protocol scheme"}},
		{"tcp://127.0.0.1?rank=0&world_size=1", nil, []string{"port number missing"}},
		{"tcp://127.0.0.1:23456?world_size=1", nil, []string{"rank parameter missing"}},
		{"tcp://127.0.0.1:23456?rank=0", nil, []string{"size parameter missing"}},
		{"tcp://", nil, []string{"host missing", "port number missing", "rank parameter missing", "size parameter missing"}},
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
		{"env://", append([]string{"MASTER_PORT", "-1"}, full...), []string{`the port must have a value from 0 to 65535, but is "-1"`}},
	} {
		_, err := Open(t.Context(), tc.url, OpenConfig{LookupEnv: environment(tc.env...)})
		require.ErrorIs(t, err, ErrBadURL, tc.url)
		for _, part := range tc.want {
			require.ErrorContains(t, err, part, tc.url)
		}
	}
}

// freePort is one that nobody listens on.
func freePort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
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
	agent := startServer(t, ServerConfig{})
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
