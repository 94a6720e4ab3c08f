package rpc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/rpc/internal/membership"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
	"github.com/weft-project/weft/transport/simnet"
)

// rejoin brings a worker of a static world back from another host.
func rejoin(t *testing.T, ws []*Worker, n *simnet.Net, rank int, host string) *Worker {
	t.Helper()
	w, err := Join(t.Context(), Config{
		Store: ws[0].members.Registry.Store, Rank: rank, WorldSize: len(ws), Network: n.Host(host), Listen: host + ":0",
		Functions: []Function{double, wait, twice}, Logger: discard, JoinTimeout: 20 * time.Second,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	return w
}

func TestALostWorkerOfAStaticWorldComesBackUnderItsRank(t *testing.T) {
	for _, size := range []int{2, 3, 12} {
		for _, rank := range []int{0, 1, size - 1} {
			t.Run(fmt.Sprintf("%d of %d", rank, size), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ws, n := simWith(t, size, simnet.Config{MinDelay: time.Millisecond}, serve(double, wait, twice))
					other := ws[(rank+1)%size]
					old := ws[rank]
					pending := wait.Async(other.Context(t.Context()), old.Name(), 0)
					time.Sleep(time.Second)
					n.Kill(fmt.Sprintf("host%d", rank))
					back := rejoin(t, ws, n, rank, "again")
					_, err := pending.Wait(t.Context())
					require.ErrorIs(t, err, ErrPeerLost)
					require.ErrorContains(t, err, old.Name())
					time.Sleep(time.Second)
					x := autodiff.Rand(2).RequireGrad()
					for i, w := range ws {
						if i == rank {
							continue
						}
						require.Greater(t, w.Workers()[rank].Incarnation, old.epoch)
						requireCall(t, w, back.Name())
						requireCall(t, back, w.Name())
						require.NoError(t, back.Pass(t.Context(), func(c context.Context) error {
							_, err := twice.Call(c, w.Name(), x)
							return err
						}))
					}
					require.NoError(t, back.Settle(t.Context()))
				})
			})
		}
	}
}

func TestAReferenceWhoseOwnerWasReplacedSaysThatTheValueIsGoneWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws, n := simWith(t, 2, simnet.Config{MinDelay: time.Millisecond}, serve(double, wait, twice))
		c := ws[0].Context(t.Context())
		r := double.Remote(c, "worker1", 3)
		require.NoError(t, r.Ready(c))
		n.Kill("host1")
		rejoin(t, ws, n, 1, "again")
		time.Sleep(time.Second)
		_, err := r.ToHere(c)
		require.ErrorIs(t, err, ErrPeerLost)
		require.NotErrorIs(t, err, ErrReleased, "nobody released it")
		require.ErrorContains(t, err, "worker1 was replaced, and the values that it owned are gone")
		r.Release()
	})
}

// slowReads is a store that takes its time for reads.
type slowReads struct{ store.Store }

func (s slowReads) MultiGet(c context.Context, keys ...string) ([][]byte, error) {
	return slowly(c, func() ([][]byte, error) { return s.Store.MultiGet(c, keys...) })
}

func (s slowReads) Get(c context.Context, key string) ([]byte, error) {
	return slowly(c, func() ([]byte, error) { return s.Store.Get(c, key) })
}

func slowly[T any](c context.Context, do func() (T, error)) (v T, err error) {
	select {
	case <-time.After(100 * time.Millisecond):
		return do()
	case <-c.Done():
		return v, context.Cause(c)
	}
}

func TestWorkersThatAllEndBecauseOfALossComeBackWithTheSameStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws, n := simWith(t, 2, simnet.Config{MinDelay: time.Millisecond}, func(_ int, cfg *Config) {
			cfg.Functions, cfg.Store = []Function{wait}, slowReads{cfg.Store}
		})
		pending := wait.Async(ws[1].Context(t.Context()), "worker0", 0)
		time.Sleep(time.Second)
		n.Kill("host0")
		_, err := pending.Wait(t.Context())
		require.ErrorIs(t, err, ErrPeerLost)
		require.NoError(t, ws[1].Close()) // at once, while the loss is being marked
		again := func(i int) transport.Network { return n.Host(fmt.Sprint("again", i)) }
		back, errs := joinAll(t.Context(), ws[0].members.Registry.Store, 2, again, func(i int, cfg *Config) { cfg.Listen = fmt.Sprintf("again%d:0", i) })
		closeAtEnd(t, back)
		require.Equal(t, []error{nil, nil}, errs)
	})
}

func TestAPlaceIsNotTakenFromAWorkerThatAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws, n := simWith(t, 2, simnet.Config{MinDelay: time.Millisecond}, serve(double))
		_, err := Join(t.Context(), Config{Store: ws[0].members.Registry.Store, Rank: 1, WorldSize: 2, Network: n.Host("x"), Listen: "x:0", Logger: discard})
		require.ErrorIs(t, err, ErrRankTaken)
		requireCall(t, ws[0], "worker1")
	})
}

func TestAPartitionIsALossOnBothSidesAndTheMinorityComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws, n := simWith(t, 3, simnet.Config{MinDelay: time.Millisecond}, serve(double, wait, twice))
		there := wait.Async(ws[0].Context(t.Context()), "worker2", 0)
		back := wait.Async(ws[2].Context(t.Context()), "worker0", 0)
		synctest.Wait()
		start := time.Now()
		n.Cut("host0", "host2")
		n.Cut("host1", "host2")
		for _, f := range []*Future[int]{there, back} {
			_, err := f.Wait(t.Context())
			require.ErrorIs(t, err, ErrPeerLost)
		}
		require.Less(t, time.Since(start), 3*time.Second)
		time.Sleep(10*time.Second - time.Since(start))
		n.Heal("host0", "host2")
		n.Heal("host1", "host2")
		_, err := double.Call(ws[2].Context(t.Context()), "worker0", 1)
		require.ErrorIs(t, err, ErrPeerLost, "a loss is final")
		require.NoError(t, ws[2].Close())
		again := rejoin(t, ws, n, 2, "host2")
		time.Sleep(time.Second)
		requireCall(t, ws[0], "worker2")
		requireCall(t, again, "worker1")
	})
}

func TestALargeWorldHasFewLinksAndMakesOthersWhenTheyAreNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 64
		ws, n := simWith(t, size, simnet.Config{MinDelay: time.Millisecond}, serve(double))
		links := func() (sum int) {
			for _, w := range ws {
				for _, p := range w.members.All() {
					if p.Link != nil && p.Gone == nil && p.Rank != w.rank {
						sum++
					}
				}
			}
			return sum / 2
		}
		require.Less(t, links(), 64*13/2)
		for i, w := range ws {
			require.Len(t, w.Workers(), size)
			requireCall(t, w, Rank((i+21)%size)) // no finger
		}
		many := links()
		require.Greater(t, many, 64*7)
		requireCall(t, ws[0], Rank(21))
		require.Equal(t, many, links(), "it is kept")

		n.Kill("host40")
		start := time.Now()
		time.Sleep(10 * time.Second)
		for i, w := range ws {
			if i != 40 {
				_, err := double.Call(w.Context(t.Context()), "worker40", 1)
				require.ErrorIs(t, err, ErrPeerLost, "all have heard")
				require.ErrorContains(t, err, "worker40")
			}
		}
		require.Equal(t, 10*time.Second, time.Since(start), "and fail at once")
		require.NoError(t, ws[40].Close())
		done := make(chan error, size)
		for i, w := range ws {
			if i != 40 {
				go func() { done <- w.Leave(t.Context()) }()
			}
		}
		for range size - 1 {
			err := <-done
			require.ErrorIs(t, err, ErrPeerLost)
			require.ErrorContains(t, err, "worker40")
		}
	})
}

func TestALargeWorldLeavesTogetherWithoutALoss(t *testing.T) {
	for seed := range uint64(soak.Cases(1)) {
		synctest.Test(t, func(t *testing.T) {
			ws, _ := simWith(t, 40, simnet.Config{Seed: seed, MaxDelay: 30 * time.Millisecond}, nil)
			done := make(chan error, len(ws))
			for _, w := range ws {
				go func() {
					time.Sleep(time.Duration(rand.IntN(2000)) * time.Millisecond)
					done <- w.Leave(t.Context())
				}()
			}
			for range ws {
				require.NoError(t, <-done)
			}
		})
	}
}

func TestTwoThatDialEachOtherAtOnceEndWithOneLink(t *testing.T) {
	for seed := range uint64(soak.Cases(6)) {
		synctest.Test(t, func(t *testing.T) {
			ws, _ := simWith(t, 20, simnet.Config{Seed: seed, MaxDelay: 100 * time.Millisecond}, serve(double))
			a, b := ws[1], ws[6] // no fingers of each other
			require.Nil(t, a.members.All()[6].Link)
			calls := []*Future[int]{double.Async(a.Context(t.Context()), "worker6", 1), double.Async(b.Context(t.Context()), "worker1", 1)}
			for _, f := range calls {
				_, err := f.Wait(t.Context())
				require.NoError(t, err)
			}
			time.Sleep(time.Minute)
			for range 3 {
				requireCall(t, a, "worker6")
				requireCall(t, b, "worker1")
			}
			require.NoError(t, a.members.All()[6].Link.Err())
			require.NoError(t, b.members.All()[1].Link.Err())
		})
	}
}

func TestACallToADeadWorkerThatWasNeverLinkedFailsSoonAndNamesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws, n := simWith(t, 20, simnet.Config{MinDelay: time.Millisecond}, serve(double))
		n.Kill("host6")
		start := time.Now()
		_, err := double.Call(ws[1].Context(t.Context()), "worker6", 1)
		require.ErrorIs(t, err, ErrPeerLost)
		require.ErrorContains(t, err, "worker6")
		require.Less(t, time.Since(start), 6*time.Second)
	})
}

// drain takes the events that are there.
func drain(events <-chan PeerEvent) (es []PeerEvent) {
	for {
		synctest.Wait()
		select {
		case e, ok := <-events:
			if !ok {
				return es
			}
			es = append(es, e)
		default:
			return es
		}
	}
}

func TestWatchersHearWhoIsThereAndThenWhoComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOpen(t)
		a, _ := o.join(nil)
		o.join(nil)
		c, cancel := context.WithCancel(t.Context())
		events := a.Peers(c)
		text := func() (out []string) {
			for _, e := range drain(events) {
				require.Zero(t, e.Missed)
				require.Equal(t, e.Change >= PeerHasLeft, e.Cause != nil)
				out = append(out, fmt.Sprintf("%s %v", e.Name, e.Change))
			}
			return out
		}
		require.Equal(t, []string{"worker1 joined"}, text())
		b, _ := o.join(nil)
		d, host := o.join(nil)
		time.Sleep(time.Second)
		require.Equal(t, []string{"worker2 joined", "worker2 linked", "worker3 joined", "worker3 linked"}, text())
		require.NoError(t, b.Leave(t.Context()))
		time.Sleep(time.Second)
		require.Equal(t, []string{"worker2 leaving", "worker2 left"}, text())
		o.net.Kill(host)
		require.NoError(t, d.Close())
		time.Sleep(4 * time.Second)
		es := drain(events)
		require.Len(t, es, 1)
		require.Equal(t, PeerWasLost, es[0].Change)
		require.ErrorIs(t, es[0].Cause, ErrPeerLost)
		cancel()
		_, more := <-events
		require.False(t, more, "it ends with its context")
		_, more = <-d.Peers(t.Context())
		require.False(t, more, "and with the worker")
	})
}

func TestASlowWatcherIsToldHowMuchItMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws := sim(t, 2, nil)
		events := ws[0].Peers(t.Context())
		synctest.Wait() // the first is being handed over
		p := ws[0].members.PeerAt(1)
		for i := range membership.MaxWatched + 5 {
			ws[0].members.Notify(p, 1, errors.New(fmt.Sprint(i)))
		}
		es := drain(events)
		require.Len(t, es, membership.MaxWatched+1)
		require.Zero(t, es[0].Missed)
		require.Equal(t, 5, es[1].Missed)
		require.ErrorContains(t, es[1].Cause, "5")
		for _, e := range es[2:] {
			require.Zero(t, e.Missed)
		}
	})
}

// Twenty have eight fingers each, and more handshakes at once than there are cores; what 64 at one
// listener cost is a test of transport. Handshakes are dear where the race detector looks at the
// arithmetic of keys: soak takes the time for 64.
func TestALargeJoinOverQUICWorks(t *testing.T) {
	n := min(64, soak.Cases(20))
	patient := func(int) transport.Network { // on a machine that is busy with other tests, who is silent for long lives on
		id, err := transport.IdentityFromToken(testToken, NoJob, "worker", nil)
		require.NoError(t, err)
		n, err := transport.New(transport.Config{Identity: id, IdleTimeout: time.Minute, Logger: discard})
		require.NoError(t, err)
		return n
	}
	start := time.Now()
	ws := world(t, n, patient, func(_ int, cfg *Config) {
		cfg.Functions, cfg.Listen, cfg.JoinTimeout = []Function{double}, "", 5*time.Minute
	})
	t.Logf("joined in %v", time.Since(start))
	for i, w := range ws {
		require.Len(t, w.Workers(), n)
		requireCall(t, w, Rank((i+n/3)%n)) // which is no finger
	}
}

func TestAWorkerThatDoesNotAnswerForAWhileDuringAJoinIsNotLost(t *testing.T) {
	for outage, joins := range map[time.Duration]bool{15 * time.Second: true, time.Hour: false} {
		synctest.Test(t, func(t *testing.T) {
			leak.Check(t)
			n := simnet.New(simnet.Config{MinDelay: time.Millisecond, Logger: discard})
			n.Cut("host1", "host2")
			time.AfterFunc(outage, func() { n.Heal("host1", "host2") })
			ws, errs := joinAll(t.Context(), memory(t), 3, onSim(n), func(_ int, cfg *Config) { cfg.Functions, cfg.JoinTimeout = []Function{double}, time.Minute })
			require.NoError(t, errs[0])
			if !joins {
				require.ErrorIs(t, errors.Join(errs...), ErrPeerLost)
				require.ErrorIs(t, errors.Join(errs...), ErrTimeout)
				require.NoError(t, ws[0].Close())
				return
			}
			require.NoError(t, errors.Join(errs...))
			requireCall(t, ws[1], "worker2")
			leaveAll(t, ws)
		})
	}
}

// TestADialOfAWorkerThatOthersHaveLostEndsAfterASilenceAndTheTimeThatALaneMayTake kills a worker
// while another one is about to dial it.
func TestADialOfAWorkerThatOthersHaveLostEndsAfterASilenceAndTheTimeThatALaneMayTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leak.Check(t)
		const detect = 8 * time.Second // also how long a dial takes that nobody answers
		n := simnet.New(simnet.Config{MinDelay: time.Millisecond, Detect: detect, Logger: discard})
		ws, errs := joinAll(t.Context(), memory(t), 12, onSim(n), func(_ int, cfg *Config) { cfg.Functions = []Function{double} })
		require.NoError(t, errors.Join(errs...))
		n.Kill("host4")
		time.Sleep(detect - 100*time.Millisecond)
		began := time.Now()
		_, err := double.Call(ws[1].Context(t.Context()), Rank(4), 1)
		require.ErrorIs(t, err, ErrPeerLost)
		require.Less(t, time.Since(began), 5*time.Second)
		closeAll(ws)
	})
}

// TestAWorkerThatOneHasLostAndThatAnswersSlowlyIsNotLostToAnother: the path to the one is cut, and
// that to the other slow.
func TestAWorkerThatOneHasLostAndThatAnswersSlowlyIsNotLostToAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leak.Check(t)
		n := simnet.New(simnet.Config{Logger: discard, Delay: func(from, to string, _ *rand.Rand) time.Duration {
			if min(from, to) == "host1" && max(from, to) == "host4" {
				return time.Second
			}
			return time.Millisecond
		}})
		ws, errs := joinAll(t.Context(), memory(t), 12, onSim(n), func(_ int, cfg *Config) { cfg.Functions = []Function{double} })
		require.NoError(t, errors.Join(errs...))
		n.Cut("host0", "host4")
		_, err := double.Call(ws[0].Context(t.Context()), Rank(4), 1)
		require.ErrorIs(t, err, ErrPeerLost)
		requireCall(t, ws[1], Rank(4))
		closeAll(ws)
	})
}

// lateNet gives what its dials of one address come to late, once it is told to.
type lateNet struct {
	transport.Network
	armed *atomic.Bool
	to    *string
	come  func(c context.Context, dial func() (transport.Link, error)) (transport.Link, error)
}

func (n lateNet) Dial(c context.Context, addr string) (transport.Link, error) {
	dial := func() (transport.Link, error) { return n.Network.Dial(c, addr) }
	if !n.armed.Load() || addr != *n.to {
		return dial()
	}
	return n.come(c, dial)
}

// TestADialOfAWorkerThatOthersHaveLostMeansWhatItComesTo: worker0 has lost worker4, which worker1
// dials then.
func TestADialOfAWorkerThatOthersHaveLostMeansWhatItComesTo(t *testing.T) {
	says := func(err error) func(context.Context, func() (transport.Link, error)) (transport.Link, error) {
		said := false
		return func(c context.Context, dial func() (transport.Link, error)) (transport.Link, error) {
			if said {
				return dial()
			}
			<-c.Done()
			said = true
			return nil, &transport.Error{Op: "dial", Peer: "worker4", Err: err}
		}
	}
	for name, c := range map[string]struct {
		come func(context.Context, func() (transport.Link, error)) (transport.Link, error)
		want error
	}{
		"a lane is joined in the last moment": {func(c context.Context, dial func() (transport.Link, error)) (transport.Link, error) {
			select {
			case <-time.After(4 * time.Second):
				return dial()
			case <-c.Done():
				return nil, context.Cause(c)
			}
		}, nil},
		"busy":            {says(transport.ErrBusy), nil},
		"refused":         {says(ErrRefused), ErrRefused},
		"nothing is said": {says(transport.ErrPeerLost), ErrPeerLost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				leak.Check(t)
				n := simnet.New(simnet.Config{MinDelay: time.Millisecond, Logger: discard})
				armed, to := &atomic.Bool{}, new(string)
				ws, errs := joinAll(t.Context(), memory(t), 12, onSim(n), func(i int, cfg *Config) {
					cfg.Functions = []Function{double}
					if i == 1 {
						cfg.Network = lateNet{cfg.Network, armed, to, c.come}
					}
				})
				require.NoError(t, errors.Join(errs...))
				*to = ws[4].members.Listener.Addr()
				armed.Store(true)
				n.Cut("host0", "host4")
				_, err := double.Call(ws[0].Context(t.Context()), Rank(4), 1)
				require.ErrorIs(t, err, ErrPeerLost)
				time.Sleep(10 * time.Second)
				_, err = double.Call(ws[1].Context(t.Context()), Rank(4), 1)
				require.ErrorIs(t, err, c.want)
				closeAll(ws)
			})
		})
	}
}

// closeAll closes workers of which some are lost.
func closeAll(ws []*Worker) {
	for _, w := range ws {
		_ = w.Close()
	}
}

func TestALinkThatTheOtherEndGaveUpBeforeItHeardTheAnswerIsNoDeparture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leak.Check(t)
		start := time.Now()
		late := func(from, to string, _ *rand.Rand) time.Duration { // the dial takes a second, and the answer to the greeting too long
			switch at := time.Since(start); {
			case from != "host1" || to != "host2" || at > 20*time.Second:
				return time.Millisecond
			case at < 2900*time.Millisecond:
				return time.Second
			}
			return membership.DialTimeout + time.Second
		}
		n := simnet.New(simnet.Config{Delay: late, Logger: discard})
		st := memory(t)
		ws, errs := make([]*Worker, 3), make([]error, 3)
		var wg sync.WaitGroup
		for i := range ws {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Second) // worker2 is the youngest, and dials worker1
				ws[i], errs[i] = Join(t.Context(), Config{
					Store: st, Rank: i, WorldSize: 3, Network: n.Host(fmt.Sprintf("host%d", i)), Listen: "x:0", Logger: discard, Functions: []Function{double},
				})
			})
		}
		wg.Wait()
		require.NoError(t, errors.Join(errs...))
		requireCall(t, ws[1], "worker2")
		requireCall(t, ws[2], "worker1")
		leaveAll(t, ws)
	})
}

// FuzzNews feeds a worker news of members.
func FuzzNews(f *testing.F) {
	ws := sim(f, 2, serve(double))
	for _, n := range ws[0].members.Known() {
		raw, err := wire.Encode(wire.NewsHeader{News: ws[1].members.Known()})
		require.NoError(f, err)
		f.Add(raw)
		n.Member.Rank = 1 << 20
		raw, err = wire.Encode(n)
		require.NoError(f, err)
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		cfg := &prepared{Config: Config{Logger: discard, Store: store.NewMemory()}}
		w := newWorker(cfg, nil)
		require.NoError(t, w.become(ws[0].members.Me, cfg))
		w.members.Close() // it does nothing of what it is asked for
		p := ws[0].members.PeerAt(1)
		_ = w.members.ServeNews(p, &transport.Message{Kind: wire.KindNews, Header: raw})
		require.NotNil(t, w.members.PeerAt(0), "this worker stays")
		w.passes.Close()
	})
}
