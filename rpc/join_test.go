package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/rpc/internal/membership"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
	"github.com/weft-project/weft/transport/simnet"
)

var discard = slog.New(slog.DiscardHandler)

// memory is a store that is closed when t ends.
func memory(t testing.TB) store.Store {
	st := store.NewMemory()
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	return st
}

func leaveAll(t testing.TB, ws []*Worker) {
	t.Helper()
	var wg sync.WaitGroup
	for _, w := range ws {
		wg.Go(func() {
			if err := w.Leave(t.Context()); err != nil {
				t.Errorf("%s: %v", w.Name(), err)
			}
		})
	}
	wg.Wait()
}

func TestWorldsOfEverySizeJoinKnowEachOtherAndLeave(t *testing.T) {
	for _, n := range []int{1, 2, 4, 16} {
		for name, quic := range map[string]bool{"simnet": false, "quic": true} {
			if quic && n > 4 {
				continue // every pair costs two handshakes
			}
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				var ws []*Worker
				if quic {
					ws = world(t, n, nil, serve(double))
				} else {
					ws = sim(t, n, serve(double))
				}
				for i, w := range ws {
					require.Equal(t, fmt.Sprintf("worker%d", i), w.Name())
					require.Equal(t, i, w.Rank())
					require.Equal(t, n, w.WorldSize())
					require.Equal(t, ws[0].Workers(), w.Workers())
					got, err := double.Call(w.Context(t.Context()), fmt.Sprintf("worker%d", (i+1)%n), i)
					require.NoError(t, err)
					require.Equal(t, 2*i, got)
				}
				leaveAll(t, ws)
				keys, err := ws[0].members.Registry.Store.NumKeys(t.Context())
				require.NoError(t, err)
				require.EqualValues(t, 1, keys, "nothing is left in the store but the count of joinings")
			})
		}
	}
}

func TestWorkersMayHaveNamesOfTheirOwnAndJoinAgainWithTheSameStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leak.Check(t)
		st := memory(t)
		n := simnet.New(simnet.Config{MinDelay: time.Millisecond})
		for round := range 3 {
			size := 2 + round
			ws, errs := joinAll(t.Context(), st, size, onSim(n), func(i int, cfg *Config) { cfg.Name, cfg.Functions = fmt.Sprintf("w:%d_-", i), []Function{double} })
			for i := range ws {
				require.NoError(t, errs[i])
			}
			got, err := double.Call(ws[0].Context(t.Context()), "w:1_-", 2)
			require.NoError(t, err)
			require.Equal(t, 4, got)
			leaveAll(t, ws)
		}
	})
}

// pretender is the configuration of a second worker of rank 1 of a world of 2.
func pretender(st store.Store, n transport.Network) Config {
	return Config{Store: st, Rank: 1, WorldSize: 2, Network: n, Listen: "late:0", Logger: discard, JoinTimeout: 5 * time.Second}
}

func TestAWorldMeetsAtTheStoreOfASchemeOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leak.Check(t)
		st, n := memory(t), simnet.New(simnet.Config{})
		opened := func(_ context.Context, u store.URL, _ store.OpenConfig) (store.Store, error) {
			return store.NewPrefix(u.Host+u.Path, shared{st}), nil
		}
		ws := make([]*Worker, 2)
		var wg sync.WaitGroup
		for i := range ws {
			wg.Go(func() {
				var err error
				ws[i], err = Join(t.Context(), Config{
					Init: fmt.Sprintf("mine://h1:1,h2/job?rank=%d&world_size=2", i), Schemes: map[string]store.Opener{"mine": opened},
					Network: n.Host(fmt.Sprint("h", i)), Listen: "x:0", Functions: []Function{double}, Logger: discard,
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		got, err := double.Call(ws[1].Context(t.Context()), "worker0", 4)
		require.NoError(t, err)
		require.Equal(t, 8, got)
		leaveAll(t, ws)
	})
}

// shared is a store that stays when one of its users closes it.
type shared struct{ store.Store }

func (shared) Close() error { return nil }

func TestATakenRankNameOrAnotherWorldSizeIsRefusedAndLeavesTheOthersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leak.Check(t)
		st := memory(t)
		n := simnet.New(simnet.Config{})
		three := func(i int, cfg *Config) { cfg.Functions = []Function{double}; cfg.WorldSize = 3 }
		var ws []*Worker
		joined := make(chan []error)
		go func() {
			var errs []error
			ws, errs = joinAll(t.Context(), st, 2, onSim(n), three)
			joined <- errs
		}()
		synctest.Wait() // two of three have come
		for _, c := range []struct {
			change func(*Config)
			err    error
			says   []string
		}{
			{func(cfg *Config) {}, ErrRankTaken, []string{"worker1: join", "1, by worker1 at host1:"}},
			{func(cfg *Config) { cfg.Name = "other" }, ErrRankTaken, []string{"other: join", "by worker1"}},
			{func(cfg *Config) { cfg.Rank, cfg.Name = 2, "worker0" }, ErrNameTaken, []string{`"worker0" by the worker of rank 0`}},
			{func(cfg *Config) { cfg.Rank, cfg.WorldSize = 2, 4 }, ErrWorldSize, []string{"told of a world of 4, worker0 of a world of 3"}},
		} {
			cfg := pretender(st, n.Host("late"))
			cfg.WorldSize = 3
			c.change(&cfg)
			start := time.Now()
			_, err := Join(t.Context(), cfg)
			require.ErrorIs(t, err, c.err)
			for _, s := range c.says {
				require.ErrorContains(t, err, s)
			}
			require.Zero(t, time.Since(start))
		}
		cfg := pretender(st, n.Host("late"))
		cfg.Rank, cfg.WorldSize = 2, 3
		last, err := Join(t.Context(), cfg)
		require.NoError(t, err)
		for _, err := range <-joined {
			require.NoError(t, err)
		}
		leaveAll(t, append(ws, last))
	})
}

func TestTwoWorkersThatClaimOneRankAtOnceNeverBothGetIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leak.Check(t)
		st := memory(t)
		n := simnet.New(simnet.Config{})
		ws := make([]*Worker, 3)
		errs := make([]error, 3)
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				cfg := pretender(st, n.Host(fmt.Sprintf("host%d", i)))
				cfg.Rank = min(i, 1)
				ws[i], errs[i] = Join(t.Context(), cfg)
			})
		}
		wg.Wait()
		require.NoError(t, errs[0])
		require.True(t, (errs[1] == nil) != (errs[2] == nil), "%v, %v", errs[1], errs[2])
		kept, err := st.Check(t.Context(), membership.KeyPrefix+"name/worker1", membership.RankKey(1))
		require.NoError(t, err)
		require.True(t, kept, "the loser takes back nothing of the winner's")
		for i, err := range errs {
			if err != nil { // which of its two claims was first to be seen
				require.True(t, errors.Is(err, ErrRankTaken) || errors.Is(err, ErrNameTaken), "%v", err)
			} else {
				require.NoError(t, ws[i].Close())
			}
		}
	})
}

func TestAnotherTokenIsRefusedAtOnceAndTakesNobodysPlace(t *testing.T) {
	leak.Check(t)
	st := memory(t)
	var logs journal
	leader := make(chan error, 1)
	var w0 *Worker
	base := Config{Store: st, WorldSize: 2, Token: testToken, JoinTimeout: 20 * time.Second, Logger: discard}
	go func() {
		cfg := base
		cfg.Logger = logs.logger()
		var err error
		w0, err = Join(t.Context(), cfg)
		leader <- err
	}()
	cfg := base
	cfg.Rank = 1
	for range 2 {
		cfg.Token = otherToken
		start := time.Now()
		_, err := Join(t.Context(), cfg)
		require.ErrorIs(t, err, transport.ErrIdentity)
		require.Less(t, time.Since(start), 3*time.Second)
	}
	require.Eventually(t, func() bool { return logs.count("level=WARN") > 0 }, time.Minute, time.Millisecond) // who is refused may know it first
	require.LessOrEqual(t, logs.count("level=WARN"), 2, logs.String())
	cfg.Token = testToken
	w1, err := Join(t.Context(), cfg)
	require.NoError(t, err)
	require.NoError(t, <-leader)
	leaveAll(t, []*Worker{w0, w1})
}

func TestAJobWithoutATokenIsToldWhatToDo(t *testing.T) {
	t.Setenv("WEFT_TOKEN", "")
	_, err := Join(t.Context(), Config{Store: memory(t), WorldSize: 1})
	require.ErrorIs(t, err, ErrConfig)
	require.ErrorContains(t, err, "weft run")
	require.ErrorContains(t, err, "WEFT_TOKEN")
	t.Setenv("WEFT_TOKEN", testToken)
	w, err := Join(t.Context(), Config{Store: memory(t), WorldSize: 1, Logger: discard})
	require.NoError(t, err)
	require.NoError(t, w.Close())
}

func TestABadConfigurationIsReportedWhole(t *testing.T) {
	two := device.NewSim(device.SimConfig{})
	_, err := Join(t.Context(), Config{
		Store: memory(t), Rank: 7, WorldSize: 3, Name: "no spaces", Timeout: -5, Network: simnet.New(simnet.Config{}).Host("h"),
		Functions: []Function{double, double, declare[any]("bad"), declare[int]("")}, Devices: []device.Device{two, two, nil},
		JoinTimeout: -3, PassLease: -1, Listen: "nohost", DeviceMaps: map[string]device.Map{
			"": {}, Rank(1): {}, "worker1": {device.Sim(0): device.Sim(1), {}: device.Sim(1), device.Sim(7): device.Sim(0)},
		},
	})
	require.ErrorIs(t, err, ErrConfig)
	require.Equal(t, 1, strings.Count(err.Error(), ErrConfig.Error()), "it is said once: %v", err)
	for _, s := range []string{
		"rank 7; expected 0 to 2", `"no spaces"; expected 1 to 127`, `"double" is listed twice`, `function "bad"`, "1 to 128 bytes", "sim:0",
		"timeout -5ns; expected a positive one, or NoTimeout", "the device is nil", "a lease of -1ns for passes", "join timeout -3ns; expected a positive one",
		`listen at "nohost"; expected host:port`, `device map for ""; expected a worker's name`, `device map for "#1"; expected a worker's name`,
		"device map for worker1: ", "source sim:7 does not exist here", "cpu and sim:0 both map to sim:1",
	} {
		require.ErrorContains(t, err, s)
	}
	for _, n := range []int{0, -1, 1<<16 + 1} {
		_, err = Join(t.Context(), Config{Store: memory(t), WorldSize: n, Network: simnet.New(simnet.Config{}).Host("h")})
		require.ErrorContains(t, err, "expected 1 to 65536")
	}
	_, err = Join(t.Context(), Config{Init: "env://", Dynamic: true, WorldSize: 3, Rank: -1, Token: testToken})
	require.ErrorContains(t, err, "a dynamic world needs a Store")
	require.ErrorContains(t, err, "world size 3, rank -1 in a dynamic world")
	_, err = Join(t.Context(), Config{Store: memory(t), WorldSize: 1, Name: strings.Repeat("x", 128), Token: testToken})
	require.ErrorContains(t, err, "1 to 127")
}

func TestMissingWorkersAreNamedWhenTheTimeIsUpAndNothingIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leak.Check(t)
		st := memory(t)
		n := simnet.New(simnet.Config{})
		start := time.Now()
		_, errs := joinAll(t.Context(), st, 5, onSim(n), func(i int, cfg *Config) {
			if i == 2 || i == 4 {
				cfg.Functions = []Function{declare[any]("bad")} // fails before it comes
			}
		})
		for _, i := range []int{0, 1, 3} {
			require.ErrorIs(t, errs[i], ErrTimeout)
			require.ErrorIs(t, errs[i], context.DeadlineExceeded)
			require.ErrorContains(t, errs[i], fmt.Sprintf("worker%d: join: ", i))
			require.ErrorContains(t, errs[i], "rank 2 of 5")
			require.ErrorContains(t, errs[i], "4")
		}
		require.Equal(t, 10*time.Second, time.Since(start))
		keys, err := st.NumKeys(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, keys, "the claims are taken back")
	})
}

func TestAMissingLeaderIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leak.Check(t)
		_, err := Join(t.Context(), pretender(memory(t), simnet.New(simnet.Config{}).Host("late")))
		require.ErrorIs(t, err, ErrTimeout)
		require.ErrorContains(t, err, "rank 0 of 2")
	})
}

func TestCancellingAJoinEndsItAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leak.Check(t)
		c, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		_, err := Join(c, pretender(memory(t), simnet.New(simnet.Config{}).Host("late")))
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, time.Second, time.Since(start))
	})
}

func TestInvalidDeviceMapsAreRefusedByAllWorkersWithEveryViolation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leak.Check(t)
		st := memory(t)
		_, errs := joinAll(t.Context(), st, 3, onSim(simnet.New(simnet.Config{})), func(i int, cfg *Config) {
			cfg.Devices = []device.Device{device.NewSim(device.SimConfig{}), device.NewSim(device.SimConfig{Index: 1})}
			switch i {
			case 0:
				cfg.DeviceMaps = map[string]device.Map{"nobody": {}, "worker1": {device.Sim(1): device.Sim(5), device.Sim(0): device.Sim(6)}}
			case 2:
				cfg.DeviceMaps = map[string]device.Map{"worker0": {device.Sim(0): device.Sim(7)}}
			}
		})
		for _, err := range errs {
			require.ErrorIs(t, err, device.ErrBadMap)
			require.ErrorIs(t, err, ErrUnknownWorker)
			for _, s := range []string{`worker0 maps devices to "nobody"`, "worker0 to worker1", "sim:5", "sim:6", "worker2 to worker0", "sim:7"} {
				require.ErrorContains(t, err, s)
			}
		}
		keys, err := st.NumKeys(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, keys)
	})
}

func TestWorkersMeetAtAURL(t *testing.T) {
	addr := proctest.Address()
	host, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	for scheme, url := range map[string]string{
		"tcp":  "tcp://" + addr + "?rank=%d&world_size=2",
		"file": "file://" + filepath.ToSlash(filepath.Join(t.TempDir(), "store")) + "?rank=%d&world_size=2",
		"env":  "env://?rank=%d&world_size=2",
	} {
		t.Run(scheme, func(t *testing.T) {
			t.Setenv("MASTER_ADDR", host)
			t.Setenv("MASTER_PORT", port)
			leak.Check(t)
			ws, errs := joinAll(t.Context(), nil, 2, onSim(simnet.New(simnet.Config{})), func(i int, cfg *Config) {
				cfg.Init, cfg.Functions = fmt.Sprintf(url, i), []Function{double}
			})
			for i := range ws {
				require.NoError(t, errs[i])
			}
			n, err := double.Call(ws[0].Context(t.Context()), "worker1", 2)
			require.NoError(t, err)
			require.Equal(t, 4, n)
			leaveAll(t, ws)
		})
	}
	_, err = Join(t.Context(), Config{Init: "gopher://x", Token: testToken})
	require.ErrorIs(t, err, store.ErrBadURL)
}

func TestWhatIsWrongWithoutAStoreIsSaidBeforeOneIsSought(t *testing.T) {
	t.Setenv("WEFT_TOKEN", "")
	var none *Func[int, int]
	_, err := Join(t.Context(), Config{Init: "tcp://127.0.0.1:1?rank=1&world_size=2", Name: "no blanks", Functions: []Function{nil, none}})
	require.ErrorIs(t, err, ErrConfig)
	for _, part := range []string{"no token", `worker name "no blanks"`, "a function is nil"} {
		require.ErrorContains(t, err, part)
	}
}

func TestAProgramThatNobodyLaunchedIsToldHow(t *testing.T) {
	t.Setenv("RANK", "")
	_, err := Join(t.Context(), Config{Token: testToken})
	require.ErrorIs(t, err, store.ErrBadURL)
	require.ErrorContains(t, err, "weft run")
}

func TestDifferentWorldSizesInTheEnvironmentAreToldAtOnce(t *testing.T) {
	server, err := store.Serve(store.ServerConfig{Addr: "127.0.0.1:0"})
	require.NoError(t, err)
	defer server.Close() //nolint:errcheck // the end of the test
	c, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for rank, size := range []int{3, 2} {
		wg.Go(func() {
			st, err := store.Dial(c, store.ClientConfig{Addr: server.Addr(), WorldSize: size})
			require.NoError(t, err)
			defer st.Close() //nolint:errcheck // the end of the test
			_, err = Join(c, Config{Store: st, Rank: rank, WorldSize: size, Token: testToken, Logger: discard})
			if rank == 1 {
				require.ErrorIs(t, err, ErrWorldSize)
				cancel() // worker 0 waits for a worker that may still come
			}
			require.Error(t, err)
		})
	}
	wg.Wait()
}

func TestJoinSaysForWhomItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logs journal
		_, err := Join(t.Context(), Config{Store: memory(t), WorldSize: 2, Network: simnet.New(simnet.Config{}).Host("a"), Listen: "a:0", Logger: logs.logger()})
		require.ErrorIs(t, err, ErrTimeout)
		require.Equal(t, 1, logs.count("still waiting for a worker to join"))
		require.Contains(t, logs.String(), "rank=1 world=2")
	})
}

func TestAStrangersGreetingIsAnsweredWithTheReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logs journal
		ws, n := simWith(t, 2, simnet.Config{MinDelay: time.Millisecond}, func(_ int, cfg *Config) { cfg.Logger, cfg.Functions = logs.logger(), []Function{double} })
		addr := ws[0].members.Listener.Addr()
		hello := func(name string, rank, world int, to string, life uint64) wire.HelloHeader {
			h := wire.HelloHeader{Member: ws[1].members.Me, To: to, Life: ws[0].epoch + life}
			h.Name, h.Rank, h.World = name, rank, world
			return h
		}
		for _, c := range []struct {
			kind   uint8
			header any
			err    error
		}{
			{wire.KindHello, hello("worker1", 1, 2, "worker0", 0), nil}, // it is linked already: the link is not wanted
			{wire.KindHello, hello("other", 1, 2, "worker0", 0), ErrRefused},
			{wire.KindHello, hello("worker1", 1, 2, "worker9", 0), ErrRefused},
			{wire.KindHello, hello("worker1", 1, 3, "worker0", 0), ErrWorldSize},
			{wire.KindHello, hello("worker1", 1, 0, "worker0", 0), ErrWorldSize},
			{wire.KindHello, hello("worker7", 7, 2, "worker0", 0), ErrRefused},
			{wire.KindHello, hello("worker7", -1, 2, "worker0", 0), ErrRefused},
			{wire.KindHello, hello("worker1", 1, 2, "worker0", 1), ErrRefused}, // another life of worker0 is meant
			{wire.KindHello, "nonsense", ErrProtocol},
			{wire.KindCall, wire.CallHeader{Function: "double"}, ErrProtocol},
		} {
			link, err := n.Host("stranger").Dial(t.Context(), addr)
			require.NoError(t, err)
			raw := rawHeader(t, c.header)
			reply, err := exchange(t.Context(), link, &transport.Message{Kind: c.kind, Header: raw}, nil)
			require.NoError(t, err)
			require.ErrorIs(t, answered(reply), c.err)
			require.NoError(t, link.Close(""))
		}
		silent, err := n.Host("stranger").Dial(t.Context(), addr)
		require.NoError(t, err)
		start := time.Now()
		<-silent.Done()
		require.Less(t, time.Since(start), 3*membership.HelloTimeout, "who says nothing is shown the door")
		require.Equal(t, 10, logs.count("refused a link"))
		got, err := double.Call(ws[1].Context(t.Context()), "worker0", 1)
		require.NoError(t, err)
		require.Equal(t, 2, got)
	})
}

// A worker that has joined may call one that still waits for others, and that one may call on.
func TestACallMadeWhileOthersStillLinkWaitsForTheLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		relay := Define("relay", func(c context.Context, n int) (int, error) { return double.Call(c, "worker2", n) })
		ws := make([]*Worker, 3)
		errs := make([]error, 3)
		leak.Check(t)
		st := memory(t)
		slow := func(from, to string, _ *rand.Rand) time.Duration {
			if min(from, to) == "host1" { // host1 and host2 link late
				return time.Second
			}
			return time.Millisecond
		}
		n := simnet.New(simnet.Config{Delay: slow})
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				ws[i], errs[i] = Join(t.Context(), Config{
					Store: st, Rank: i, WorldSize: 3, Network: n.Host(fmt.Sprintf("host%d", i)), Listen: "x:0", Logger: discard,
					Functions: []Function{relay, double},
				})
				if i == 0 && errs[0] == nil {
					n, err := relay.Call(ws[0].Context(t.Context()), "worker1", 3)
					if err != nil || n != 6 {
						t.Errorf("%d, %v", n, err)
					}
				}
			})
		}
		wg.Wait()
		for i := range ws {
			require.NoError(t, errs[i])
		}
		leaveAll(t, ws)
	})
}
