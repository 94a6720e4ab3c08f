package rpc

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/rpc/internal/membership"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/rpc/trace"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
	"github.com/weft-project/weft/transport/simnet"
)

// open is a dynamic world of a test.
type open struct {
	t   *testing.T
	st  store.Store
	net *simnet.Net
	n   int // hosts so far
}

func newOpen(t *testing.T) *open {
	leak.Check(t)
	return &open{t: t, st: memory(t), net: simnet.New(simnet.Config{MinDelay: time.Millisecond, Logger: discard})}
}

func (o *open) config(change func(*Config)) (cfg Config, host string) {
	o.n++
	host = fmt.Sprintf("h%d", o.n)
	cfg = Config{
		Store: o.st, Dynamic: true, Network: o.net.Host(host), Listen: host + ":0", Functions: []Function{double, twice, wait}, Logger: discard,
		JoinTimeout: 20 * time.Second,
	}
	if change != nil {
		change(&cfg)
	}
	return cfg, host
}

// join gives a worker, which is closed with the test, and its host.
func (o *open) join(change func(*Config)) (*Worker, string) {
	o.t.Helper()
	cfg, host := o.config(change)
	w, err := Join(o.t.Context(), cfg)
	require.NoError(o.t, err)
	o.t.Cleanup(func() { require.NoError(o.t, w.Close()) })
	return w, host
}

func requireCall(t *testing.T, from *Worker, to string) {
	t.Helper()
	n, err := double.Call(from.Context(t.Context()), to, 21)
	require.NoError(t, err)
	require.Equal(t, 42, n)
}

func names(w *Worker) (ns []string) {
	for _, i := range w.Workers() {
		ns = append(ns, i.Name)
	}
	return ns
}

func TestDynamicWorkersJoinAndCallEachOtherBothWays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOpen(t)
		var ws []*Worker
		for i := range 12 {
			w, _ := o.join(nil)
			require.Equal(t, i, w.Rank(), "the lowest that is free")
			require.Equal(t, fmt.Sprintf("worker%d", i), w.Name())
			require.Zero(t, w.WorldSize())
			for _, old := range ws { // a new rank can communicate with the existing ones, and they with it
				requireCall(t, w, old.Name())
				requireCall(t, old, w.Name())
				requireCall(t, old, Rank(i))
			}
			ws = append(ws, w)
		}
		synctest.Wait()
		for _, w := range ws {
			require.Equal(t, ws[0].Workers(), w.Workers())
		}
	})
}

func TestNewcomersThatComeAtOnceAllFindEachOther(t *testing.T) {
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			o := newOpen(t)
			o.net = simnet.New(simnet.Config{Seed: seed, MaxDelay: 50 * time.Millisecond, Logger: discard})
			ws := make([]*Worker, 20)
			var wg sync.WaitGroup
			for i := range ws {
				cfg, _ := o.config(nil)
				wg.Go(func() {
					time.Sleep(time.Duration(rand.New(rand.NewPCG(seed, uint64(i))).IntN(100)) * time.Millisecond)
					w, err := Join(t.Context(), cfg)
					if err != nil {
						t.Error(err)
						return
					}
					ws[i] = w
				})
			}
			wg.Wait()
			require.False(t, t.Failed())
			time.Sleep(5 * time.Second)
			for _, w := range ws {
				require.Len(t, w.Workers(), len(ws), w.Name())
			}
			requireCall(t, ws[3], ws[17].Name())
			for _, w := range ws {
				require.NoError(t, w.Close())
			}
		})
	}
}

func TestWorkersOfADynamicWorldLeaveWhileOthersRunRankZeroIncluded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOpen(t)
		a, _ := o.join(nil)
		b, _ := o.join(nil)
		c, _ := o.join(func(cfg *Config) { cfg.Rank, cfg.Name = 7, "late" })
		require.Equal(t, 7, c.Rank())
		start := time.Now()
		require.NoError(t, a.Leave(t.Context()))
		require.Less(t, time.Since(start), time.Second, "it does not wait for the others to leave")
		time.Sleep(time.Second)
		require.Equal(t, []string{"worker1", "late"}, names(b))
		requireCall(t, b, "late")
		_, err := double.Call(b.Context(t.Context()), "worker0", 1)
		require.ErrorIs(t, err, ErrPeerLeft)
		d, _ := o.join(nil)
		require.Zero(t, d.Rank(), "the lowest that is free")
		require.Equal(t, "worker0", d.Name())
		requireCall(t, b, "worker0")
		requireCall(t, d, "late")
		_, err = double.Call(a.Context(t.Context()), "worker1", 1)
		require.ErrorIs(t, err, ErrLeft)
	})
}

func TestALeaverFinishesWhatItHasBegunAndBeginsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := Define("slow", func(_ context.Context, d time.Duration) (int, error) { time.Sleep(d); return 1, nil })
		o := newOpen(t)
		serves := func(cfg *Config) { cfg.Functions = []Function{slow, double} }
		a, _ := o.join(serves)
		b, _ := o.join(serves)
		begun := slow.Async(b.Context(t.Context()), "worker0", 5*time.Second)
		time.Sleep(time.Second)
		left := make(chan error)
		go func() { left <- a.Leave(t.Context()) }()
		n, err := begun.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.NoError(t, <-left)
		_, err = double.Call(b.Context(t.Context()), "worker0", 1)
		require.ErrorIs(t, err, ErrPeerLeft)
	})
}

func TestPassesReachWhoeverHasJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOpen(t)
		a, _ := o.join(nil)
		b, _ := o.join(nil)
		x := autodiff.Rand(4).RequireGrad()
		for range 2 { // the second time b is a newcomer under its old rank and name
			require.NoError(t, a.Pass(t.Context(), func(c context.Context) error {
				y, err := twice.Call(c, "worker1", x)
				require.NoError(t, err)
				require.NoError(t, ctx.Backward(c, autodiff.Sum(y)))
				grads, err := ctx.Gradients(c)
				require.NoError(t, err)
				got, err := autodiff.Values[float32](grads[x])
				require.NoError(t, err)
				require.Equal(t, []float32{2, 2, 2, 2}, got)
				return nil
			}))
			require.NoError(t, a.Settle(t.Context()))
			require.NoError(t, b.Pass(t.Context(), func(c context.Context) error {
				_, err := twice.Call(c, "worker0", x)
				return err
			}), "its passes are not taken for those of its life before")
			require.NoError(t, b.Settle(t.Context()))
			require.NoError(t, b.Leave(t.Context()))
			b, _ = o.join(nil)
		}
	})
}

func TestAKilledWorkerOfADynamicWorldComesBackUnderItsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOpen(t)
		a, _ := o.join(nil)
		b, host := o.join(func(cfg *Config) { cfg.Name = "ps" })
		old := b.Workers()[1]
		pending := wait.Async(a.Context(t.Context()), "ps", 0)
		time.Sleep(time.Second)
		o.net.Kill(host)
		again, _ := o.join(func(cfg *Config) { cfg.Name = "ps" }) // before anybody has noticed
		_, err := pending.Wait(t.Context())
		require.ErrorIs(t, err, ErrPeerLost)
		require.ErrorContains(t, err, "ps")
		time.Sleep(time.Second)
		now, err := a.Find(t.Context(), "ps")
		require.NoError(t, err)
		require.Greater(t, now.Incarnation, old.Incarnation)
		requireCall(t, a, "ps")
		requireCall(t, again, "worker0")
		require.Len(t, a.Workers(), 2)
	})
}

// held is a store that stands still once so many workers have been counted by it.
type held struct {
	store.Store
	after  int
	counts int
	stands chan struct{} // closed then
	goOn   chan struct{}
}

func (h *held) Add(c context.Context, key string, delta int64) (int64, error) {
	n, err := h.Store.Add(c, key, delta)
	if strings.HasSuffix(key, "/joins") {
		if h.counts++; h.counts == h.after {
			close(h.stands)
			<-h.goOn
		}
	}
	return n, err
}

// TestAWorkerThatJoinsSlowlyTakesAPlaceThatALaterOneHasHadMeanwhile: its incarnation was counted
// before that one's.
func TestAWorkerThatJoinsSlowlyTakesAPlaceThatALaterOneHasHadMeanwhile(t *testing.T) {
	for name, after := range map[string]int{"left": 2, "left before it was counted": 1, "killed": 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newOpen(t)
				a, _ := o.join(nil)
				slow := &held{Store: o.st, after: after, stands: make(chan struct{}), goOn: make(chan struct{})}
				cfg, _ := o.config(func(cfg *Config) { cfg.Store = slow })
				joined := make(chan *Worker)
				go func() {
					w, err := Join(t.Context(), cfg)
					assert.NoError(t, err)
					joined <- w
				}()
				<-slow.stands
				quick, host := o.join(nil)
				require.Equal(t, 1, quick.Rank())
				requireCall(t, a, quick.Name())
				if name == "killed" {
					o.net.Kill(host)
				} else {
					require.NoError(t, quick.Close())
				}
				time.Sleep(3 * time.Second)
				close(slow.goOn)
				w := <-joined
				require.NotNil(t, w)
				t.Cleanup(func() { require.NoError(t, w.Close()) })
				require.Equal(t, 1, w.Rank())
				requireCall(t, a, w.Name())
				requireCall(t, w, a.Name())
			})
		})
	}
}

func TestDynamicAndStaticWorldsDoNotMix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOpen(t)
		o.join(nil)
		for _, rank := range []int{0, 1} {
			cfg, _ := o.config(func(cfg *Config) { cfg.Dynamic, cfg.Rank, cfg.WorldSize = false, rank, 2 })
			_, err := Join(t.Context(), cfg)
			require.ErrorIs(t, err, ErrWorldSize)
			require.ErrorContains(t, err, "told of a world of 2, worker0 of a dynamic world")
		}
		cfg, _ := o.config(func(cfg *Config) { cfg.Dynamic, cfg.Rank, cfg.WorldSize = false, 0, 2 })
		p, err := cfg.prepare()
		require.NoError(t, err)
		require.NoError(t, p.network())
		p.succeeds = true // it is started again, and takes nobody's place for that of who was there before
		w := newWorker(p, func() error { return nil })
		require.ErrorIs(t, w.join(t.Context(), p), ErrWorldSize)
		require.NoError(t, w.Close())
	})
	synctest.Test(t, func(t *testing.T) {
		o := newOpen(t)
		o.join(func(cfg *Config) { cfg.Dynamic, cfg.WorldSize = false, 1 })
		cfg, _ := o.config(nil)
		_, err := Join(t.Context(), cfg)
		require.ErrorIs(t, err, ErrWorldSize)
		require.ErrorContains(t, err, "told of a dynamic world, worker0 of a world of 1")
	})
	for _, bad := range []Config{{Dynamic: true}, {Dynamic: true, WorldSize: 2, Store: memory(t)}, {Dynamic: true, Rank: -1, Store: memory(t)}} {
		bad.Token = testToken
		_, err := Join(t.Context(), bad)
		require.ErrorIs(t, err, ErrConfig)
		require.ErrorContains(t, err, "dynamic world")
	}
}

func TestANameOrAWantedRankThatIsTakenIsRefusedInADynamicWorldToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOpen(t)
		a, _ := o.join(nil)
		o.join(func(cfg *Config) { cfg.Rank = 5 })
		for want, change := range map[error]func(*Config){
			ErrNameTaken: func(cfg *Config) { cfg.Name = "worker0" },
			ErrRankTaken: func(cfg *Config) { cfg.Rank, cfg.Name = 5, "other" },
		} {
			cfg, _ := o.config(change)
			_, err := Join(t.Context(), cfg)
			require.ErrorIs(t, err, want)
		}
		time.Sleep(time.Second)
		require.Equal(t, []string{"worker0", "worker5"}, names(a))
	})
}

func TestAStrangerTakesNoPlaceInADynamicWorld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOpen(t)
		o.join(nil)
		before, err := o.st.NumKeys(t.Context())
		require.NoError(t, err)
		cfg, host := o.config(nil)
		cfg.Network = o.net.HostWithToken(host, "other")
		_, err = Join(t.Context(), cfg)
		require.ErrorContains(t, err, "tokens differ")
		after, err := o.st.NumKeys(t.Context())
		require.NoError(t, err)
		require.Equal(t, before, after)
	})
}

func TestNobodyJoinsADynamicWorldOfWhichNobodyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOpen(t)
		_, host := o.join(nil)
		o.net.Kill(host)
		cfg, _ := o.config(nil)
		_, err := Join(t.Context(), cfg)
		require.ErrorContains(t, err, "none of the workers in the store answers")
		require.ErrorContains(t, err, "worker0")
	})
}

func TestWhoSawOnlyAWorkerThatDiesJoinsByOneThatCameMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOpen(t)
		_, host := o.join(func(cfg *Config) { cfg.Name = "early" })
		o.net.Kill(host)
		cfg, _ := o.config(func(cfg *Config) { cfg.Name = "third" })
		joined := make(chan error)
		go func() {
			w, err := Join(t.Context(), cfg)
			if err == nil {
				defer w.Close()
			}
			joined <- err
		}()
		time.Sleep(time.Second)                                   // it dials the dead one
		_, err := o.st.Delete(t.Context(), membership.RankKey(0)) // the other found nobody there yet
		require.NoError(t, err)
		o.join(func(cfg *Config) { cfg.Name = "second" })
		require.NoError(t, <-joined)
	})
}

func TestAWorkerThatOneHasNotHeardOfIsFoundInTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOpen(t)
		o.net = simnet.New(simnet.Config{Logger: discard, Drop: func(_, _ string, m *transport.Message) bool {
			return m.Kind == wire.KindNews
		}})
		var ws []*Worker
		for i := range 11 {
			w, _ := o.join(func(cfg *Config) { cfg.Rank = i + i/5 })
			ws = append(ws, w)
		}
		o.join(func(cfg *Config) { cfg.Rank = 5 })
		i := slices.IndexFunc(ws, func(w *Worker) bool { return !slices.Contains(names(w), "worker5") })
		require.GreaterOrEqual(t, i, 0, "not all are linked with the newcomer, and news is lost")
		a := ws[i]
		requireCall(t, a, "worker5")
		require.Contains(t, names(a), "worker5")
		_, err := double.Call(a.Context(t.Context()), "nobody", 1)
		require.ErrorIs(t, err, ErrUnknownWorker)
		_, err = a.Find(t.Context(), Rank(99))
		require.ErrorIs(t, err, ErrUnknownWorker)
	})
}

func TestADynamicNewcomerWhoseDeviceMapsDoNotFitIsRefusedAndTheOthersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOpen(t)
		a, _ := o.join(func(cfg *Config) {
			cfg.Devices = []device.Device{device.NewSim(device.SimConfig{})}
			cfg.DeviceMaps = map[string]device.Map{"worker2": {device.Sim(0): device.Sim(3)}} // it may come one day
		})
		b, _ := o.join(nil)
		for _, change := range []func(*Config){
			func(cfg *Config) { cfg.Name = "worker2" }, // it has not what worker0 expects
			func(cfg *Config) {
				cfg.Name, cfg.DeviceMaps = "x", map[string]device.Map{"worker0": {device.Sim(4): device.Sim(0)}}
			},
		} {
			cfg, _ := o.config(change)
			_, err := Join(t.Context(), cfg)
			require.ErrorIs(t, err, device.ErrBadMap)
		}
		requireCall(t, a, "worker1")
		require.Equal(t, []string{"worker0", "worker1"}, names(b))
		fits, _ := o.join(func(cfg *Config) {
			cfg.Name, cfg.Devices = "worker2", []device.Device{device.NewSim(device.SimConfig{Index: 3})}
		})
		requireCall(t, a, "worker2")
		requireCall(t, fits, "worker0")
	})
}

func TestGroupsOfADynamicWorldGatherAndAreNewWithEachLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOpen(t)
		a, _ := o.join(nil)
		for range 3 { // b is another one each time
			b, _ := o.join(nil)
			done := make(chan error, 1)
			go func() { done <- Barrier(b.Context(t.Context()), "worker0", "worker1") }()
			got, err := AllGather(a.Context(t.Context()), struct{}{}, "worker0", "worker1")
			require.NoError(t, err)
			require.Len(t, got, 2)
			require.NoError(t, <-done)
			require.NoError(t, b.Leave(t.Context()))
			time.Sleep(time.Second)
		}
		c, cancel := context.WithTimeout(a.Context(t.Context()), time.Second)
		defer cancel()
		o.join(nil)
		err := Barrier(c, "worker0", "worker1")
		require.ErrorIs(t, err, ErrTimeout)
		require.ErrorContains(t, err, "worker1", "who has not come is named")
	})
}

var keepOpen = Define("keep-open", func(_ context.Context, n int) (int, error) { return n, nil })

func TestReferencesGoToAndFromNewcomersAndALeaverWaitsForThoseToItsValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOpen(t)
		serves := func(cfg *Config) { cfg.Functions = []Function{keepOpen} }
		a, _ := o.join(serves)
		b, _ := o.join(serves)
		r := keepOpen.Remote(a.Context(t.Context()), "worker1", 5)
		require.NoError(t, r.Ready(t.Context()))
		left := make(chan error, 1)
		start := time.Now()
		go func() { left <- b.Leave(t.Context()) }()
		time.Sleep(5 * time.Second)
		n, err := r.ToHere(a.Context(t.Context()))
		require.NoError(t, err, "it serves its values until they are given back")
		require.Equal(t, 5, n)
		r.Release()
		require.NoError(t, <-left)
		require.GreaterOrEqual(t, time.Since(start), 5*time.Second)
	})
}

func TestWorkersOfADynamicWorldWriteTracesUnderTheNamesThatTheyGetAndThatMerge(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(TraceVariable, dir)
	synctest.Test(t, func(t *testing.T) {
		o := newOpen(t)
		a, _ := o.join(nil)
		b, _ := o.join(nil)
		requireCall(t, a, "worker1")
		requireCall(t, b, "worker0")
		require.NoError(t, b.Leave(t.Context()))
		require.NoError(t, a.Leave(t.Context()))
	})
	var inputs []trace.Input
	for _, name := range []string{"worker0.json", "worker1.json"} {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		inputs = append(inputs, trace.Input{Name: name, Reader: bytes.NewReader(raw)})
	}
	m, err := trace.Merge(io.Discard, inputs...)
	require.NoError(t, err)
	require.Equal(t, trace.Merged{Workers: 2, Spans: 4, Flows: 2}, m)
}

func TestAGroupOfADynamicWorldNeedsNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newOpen(t).join(nil)
		require.ErrorIs(t, Barrier(w.Context(t.Context())), ErrArguments)
		require.NoError(t, Barrier(w.Context(t.Context()), w.Name()))
	})
}

func TestTwoLivesOfAWorkerShareNoSpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &spans{}
		for range 2 {
			o := newOpen(t)
			w, _ := o.join(func(cfg *Config) { cfg.Trace = sink })
			requireCall(t, w, "worker0")
			require.NoError(t, w.Leave(t.Context()))
		}
		ids := map[trace.ID]bool{}
		for _, s := range sink.all {
			ids[s.ID] = true
		}
		require.Len(t, ids, 4, "each life has a caller's and a callee's")
	})
}
