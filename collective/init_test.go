package collective

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/internal/secret/secrettest"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport/simnet"
)

// simulated is what a worker of a test needs beside its place.
func simulated(net *simnet.Net, r int) rpc.Config {
	return rpc.Config{Network: net.Host(rpctest.Host(r)), Listen: rpctest.Host(r) + ":0", Logger: slog.New(slog.DiscardHandler)}
}

// initAll calls Init for each rank, and lets all sum.
func initAll(t *testing.T, cfg func(r int) Config) {
	t.Helper()
	leak.Check(t)
	gs, net := make([]*Group, 2), rpctest.Net()
	each(t, gs, func(r int) (err error) {
		c := cfg(r)
		c.Worker = simulated(net, r)
		gs[r], err = Init(t.Context(), c)
		return err
	})
	require.Equal(t, "all", gs[0].Name())
	sums(t, gs, 0, 1)
	require.NoError(t, gs[1].Close())
	require.ErrorIs(t, rpc.Post(t.Context(), gs[1].Worker(), "worker0", "x", nil), rpc.ErrLeft, "it was closed with its group")
	next := then(t, gs[:1], func(g *Group) (*Group, error) { return g.Without(t.Context(), "worker1") })
	require.NoError(t, gs[0].Close())
	sums(t, next, 0)
	require.NoError(t, next[0].Close())
	require.ErrorIs(t, rpc.Post(t.Context(), next[0].Worker(), "worker0", "x", nil), rpc.ErrLeft, "it goes with the last generation")
}

func TestInitTakesAStore(t *testing.T) {
	st := store.NewMemory()
	defer st.Close() //nolint:errcheck // memory
	initAll(t, func(r int) Config { return Config{Store: st, Rank: r, WorldSize: 2} })
}

func TestInitTakesAFileWithThePlaceBesideIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	initAll(t, func(r int) Config { return Config{InitMethod: "file://" + path, Rank: r, WorldSize: 2} })
}

func TestInitTakesAnAddressAndRank0HostsTheStore(t *testing.T) {
	server, err := store.Serve(store.ServerConfig{}) // a port that is free
	require.NoError(t, err)
	addr := server.Addr()
	require.NoError(t, server.Close())
	initAll(t, func(r int) Config { return Config{InitMethod: "tcp://" + addr, Rank: r, WorldSize: 2} })
}

func TestInitTakesTheEnvironment(t *testing.T) {
	leak.Check(t)
	server, err := store.Serve(store.ServerConfig{})
	require.NoError(t, err)
	defer server.Close() //nolint:errcheck // nothing is left there
	host, port, _ := strings.Cut(server.Addr(), ":")
	for name, value := range map[string]string{
		"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": host, "MASTER_PORT": port, "TORCHELASTIC_USE_AGENT_STORE": "True", "WEFT_STORE_TLS": "0",
	} {
		t.Setenv(name, value)
	}
	g, err := Init(t.Context(), Config{Worker: simulated(rpctest.Net(), 0)})
	require.NoError(t, err)
	sums(t, []*Group{g}, 0)
	require.NoError(t, g.Close())
}

func TestThePlaceInInitsConfigWinsOverTheEnvironments(t *testing.T) {
	server, err := store.Serve(store.ServerConfig{})
	require.NoError(t, err)
	defer server.Close() //nolint:errcheck // nothing is left there
	host, port, _ := strings.Cut(server.Addr(), ":")
	for name, value := range map[string]string{
		"RANK": "3", "WORLD_SIZE": "5", "MASTER_ADDR": host, "MASTER_PORT": port, "TORCHELASTIC_USE_AGENT_STORE": "True", "WEFT_STORE_TLS": "0",
	} {
		t.Setenv(name, value)
	}
	initAll(t, func(r int) Config { return Config{Rank: r, WorldSize: 2} })
}

func TestInitEndsAtItsDeadlineAndNamesWhatHasNotCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := store.NewMemory()
		defer st.Close() //nolint:errcheck // memory
		c, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := Init(c, Config{Store: st, WorldSize: 3, Worker: simulated(rpctest.Net(), 0)})
		require.ErrorIs(t, err, rpc.ErrTimeout)
		require.ErrorContains(t, err, "1, 2")
		require.Equal(t, time.Second, time.Since(began))
	})
	c, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := Init(c, Config{InitMethod: "tcp://127.0.0.1:1", Rank: 1, WorldSize: 2, Worker: simulated(rpctest.Net(), 1)})
	require.ErrorIs(t, err, store.ErrUnreachable, "nobody serves the store")
	require.ErrorContains(t, err, "timed out")
}

func TestInitNamesAllVariablesThatAreMissing(t *testing.T) {
	for _, name := range []string{"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} {
		t.Setenv(name, "")
	}
	_, err := Init(t.Context(), Config{Worker: simulated(rpctest.Net(), 0)})
	for _, name := range []string{"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} {
		require.ErrorContains(t, err, name)
	}
}

func TestInitReportsAllThatIsWrongAtOnce(t *testing.T) {
	_, err := Init(context.Background(), Config{
		Store: store.NewMemory(), InitMethod: "env://", Rank: -1, Worker: rpc.Config{WorldSize: 3},
	})
	require.ErrorIs(t, err, ErrArguments)
	for _, text := range []string{"both a Store", "without a WorldSize", "rank -1 of 0", "Worker has"} {
		require.ErrorContains(t, err, text)
	}
	require.Error(t, errors.Unwrap(err))
}

func TestWhoClosesAfterTheLastOperationHarmsNobodyWhoIsStillInIt(t *testing.T) {
	for range 15 {
		st := store.NewMemory()
		each(t, make([]*Group, 3), func(r int) error {
			worker := rpc.Config{Token: secrettest.Token("job"), Logger: slog.New(slog.DiscardHandler)}
			g, err := Init(t.Context(), Config{Store: st, Rank: r, WorldSize: 3, Worker: worker})
			if err != nil {
				return err
			}
			err = g.Barrier(t.Context())
			began := time.Now()
			if err = errors.Join(err, g.Close()); err == nil && time.Since(began) >= lingering {
				err = errors.New("it waited in vain")
			}
			return err
		})
		require.NoError(t, st.Close())
	}
}
