package rpc

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/transport/simnet"
)

// each runs fn for some workers at once and gives their errors.
func each(ws []*Worker, fn func(w *Worker) error) []error {
	errs := make([]error, len(ws))
	var wg sync.WaitGroup
	for i, w := range ws {
		wg.Go(func() { errs[i] = fn(w) })
	}
	wg.Wait()
	return errs
}

func nobodyWaits(t *testing.T, ws []*Worker) {
	t.Helper()
	for _, w := range ws {
		w.groups.mu.Lock()
		require.Empty(t, w.groups.open)
		w.groups.mu.Unlock()
	}
}

func TestAllGatherGivesEveryWorkerTheValuesOfAll(t *testing.T) {
	ws := sim(t, 5, nil)
	for round := range 20 {
		for _, err := range each(ws, func(w *Worker) error {
			got, err := AllGather(w.Context(t.Context()), fmt.Sprintf("%s in round %d", w.Name(), round))
			require.Len(t, got, 5)
			for _, other := range ws {
				require.Equal(t, fmt.Sprintf("%s in round %d", other.Name(), round), got[other.Name()])
			}
			return err
		}) {
			require.NoError(t, err)
		}
	}
	nobodyWaits(t, ws)
}

func TestGroupsThatShareWorkersGatherAtOnceWithoutMixing(t *testing.T) {
	ws := sim(t, 4, nil)
	groups := [][]int{{0, 1}, {1, 2, 3}, {0, 3}, {0, 1, 2, 3}, {2}}
	var wg sync.WaitGroup
	for g, members := range groups {
		names := make([]string, len(members))
		for i, m := range members {
			names[i] = ws[m].Name()
		}
		for _, m := range members {
			wg.Go(func() {
				order := append([]string{}, names...)
				rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
				for round := range 10 {
					got, err := AllGather(ws[m].Context(t.Context()), 1000*g+100*m+round, order...)
					require.NoError(t, err)
					want := map[string]int{}
					for _, o := range members {
						want[ws[o].Name()] = 1000*g + 100*o + round
					}
					require.Equal(t, want, got)
				}
			})
		}
	}
	wg.Wait()
	nobodyWaits(t, ws)
}

func TestNobodyPassesABarrierBeforeTheLastHasCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws, _ := simWith(t, 3, simnet.Config{MinDelay: time.Millisecond, MaxDelay: 9 * time.Millisecond}, nil)
		start := time.Now()
		for _, err := range each(ws, func(w *Worker) error {
			time.Sleep(time.Duration(w.Rank()) * time.Second) // the bubble's clock
			err := Barrier(w.Context(t.Context()))
			require.GreaterOrEqual(t, time.Since(start), 2*time.Second)
			return err
		}) {
			require.NoError(t, err)
		}
	})
}

func TestAGatheringThatTimesOutNamesWhoHasNotComeAndTheNextOneWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws := sim(t, 3, nil)
		start := time.Now()
		for _, err := range each(ws[:2], func(w *Worker) error {
			c, cancel := context.WithTimeout(w.Context(t.Context()), 100*time.Millisecond)
			defer cancel()
			return Barrier(c)
		}) {
			require.ErrorIs(t, err, ErrTimeout)
			require.ErrorContains(t, err, "have not come: worker2", "and no other, also where that one gave up first")
		}
		require.LessOrEqual(t, time.Since(start), 100*time.Millisecond)
		late, cancel := context.WithTimeout(ws[2].Context(t.Context()), time.Second)
		defer cancel()
		require.ErrorIs(t, Barrier(late), ErrTimeout, "the others have gone")
		for _, err := range each(ws, func(w *Worker) error { return Barrier(w.Context(t.Context())) }) {
			require.NoError(t, err)
		}
		nobodyWaits(t, ws)
	})
}

func TestACancelledGatheringLeavesNothingAtTheLeader(t *testing.T) {
	ws := sim(t, 2, nil)
	c, cancel := context.WithCancel(ws[1].Context(t.Context()))
	failed := make(chan error)
	go func() { failed <- Barrier(c) }()
	eventually(t, "it waits at the leader", func() bool {
		ws[0].groups.mu.Lock()
		defer ws[0].groups.mu.Unlock()
		return len(ws[0].groups.open) == 1
	})
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	eventually(t, "it is forgotten", func() bool {
		ws[0].groups.mu.Lock()
		defer ws[0].groups.mu.Unlock()
		return len(ws[0].groups.open) == 0
	})
}

func TestAGatheringRefusesWhatItCannotDo(t *testing.T) {
	ws := sim(t, 2, nil)
	c := ws[0].Context(t.Context())
	_, err := AllGather(c, autodiff.Ones(device.Float32, 1))
	require.ErrorIs(t, err, ErrArguments)
	require.ErrorContains(t, err, "tensors")
	require.ErrorIs(t, Barrier(c, "worker1"), ErrArguments, "it is not of the group itself")
	require.ErrorIs(t, Barrier(c, "worker0", "worker0"), ErrArguments)
	require.ErrorIs(t, Barrier(c, "worker0", "nobody"), ErrUnknownWorker)
	require.ErrorIs(t, Barrier(t.Context()), ErrNoWorker)
	_, err = gather.Call(c, "worker1", gathering{Key: "k", Names: []string{"a"}, From: "b"})
	require.ErrorIs(t, err, ErrArguments)
}

func TestALeaderBoundsTheGatheringsThatWait(t *testing.T) {
	g := &groups{}
	in := gathering{Names: []string{"a", "b"}, From: "a"}
	for i := range maxGatherings {
		in.Key = fmt.Sprint(i)
		_, err := g.gather(in, &participant{})
		require.NoError(t, err)
	}
	in.Key = "one more"
	_, err := g.gather(in, &participant{})
	require.ErrorIs(t, err, ErrBusy)
	in.Key = "7"
	_, err = g.gather(in, &participant{})
	require.ErrorContains(t, err, "has come to this gathering before")
	in.From = "b"
	all, err := g.gather(in, &participant{})
	require.NoError(t, err)
	require.Len(t, all, 2, "a gathering that waits already can still be completed")
}

func TestAGatheringWithALostWorkerFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws, net := simWith(t, 3, simnet.Config{}, nil)
		net.Kill("host2")
		for _, w := range ws[:2] {
			eventually(t, "its loss is noticed", func() bool { return w.members.PeerAt(2).Lost() != nil })
			require.ErrorIs(t, Barrier(w.Context(t.Context())), ErrPeerLost)
		}
	})
}

func TestBarriersOfManyGoroutinesOfTheSameWorkersAllPass(t *testing.T) {
	ws := sim(t, 3, nil)
	var wg sync.WaitGroup
	for _, w := range ws {
		for range 8 {
			wg.Go(func() {
				for range 5 {
					if err := Barrier(w.Context(t.Context())); err != nil {
						t.Errorf("%s: %v", w.Name(), err)
					}
				}
			})
		}
	}
	wg.Wait()
	nobodyWaits(t, ws)
}

func TestAWorkerThatWaitsAtABarrierServesCalls(t *testing.T) {
	ws := sim(t, 2, limited(1, 1, double))
	passed := make(chan error, 1)
	go func() { passed <- Barrier(ws[0].Context(t.Context())) }()
	eventually(t, "it waits", func() bool {
		ws[0].groups.mu.Lock()
		defer ws[0].groups.mu.Unlock()
		return len(ws[0].groups.open) == 1
	})
	n, err := double.Call(ws[1].Context(t.Context()), "worker0", 3)
	require.NoError(t, err)
	require.Equal(t, 6, n)
	require.NoError(t, Barrier(ws[1].Context(t.Context())))
	require.NoError(t, <-passed)
}

func TestAGatheringUnderACallsOwnTimeoutNamesWhoHasNotCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws := sim(t, 3, nil)
		start := time.Now()
		for _, err := range each(ws[:2], func(w *Worker) error {
			return Barrier(WithTimeout(w.Context(t.Context()), 100*time.Millisecond))
		}) {
			require.ErrorIs(t, err, ErrTimeout)
			require.ErrorContains(t, err, "have not come: ")
			require.ErrorContains(t, err, "worker2")
		}
		require.LessOrEqual(t, time.Since(start), 100*time.Millisecond)
		synctest.Wait()
		nobodyWaits(t, ws)
	})
}

func TestAGroupMayBeNamedByRanksAndByNamesMixed(t *testing.T) {
	ws := sim(t, 3, nil)
	group := [][]string{{Rank(0), Rank(2)}, nil, {"worker0", Rank(2)}}
	for _, err := range each([]*Worker{ws[0], ws[2]}, func(w *Worker) error {
		got, err := AllGather(w.Context(t.Context()), w.Rank(), group[w.Rank()]...)
		require.Equal(t, map[string]int{"worker0": 0, "worker2": 2}, got)
		return err
	}) {
		require.NoError(t, err)
	}
	require.ErrorContains(t, Barrier(ws[0].Context(t.Context()), "worker0", Rank(0)), "worker0 is twice")
	require.ErrorIs(t, Barrier(ws[0].Context(t.Context()), Rank(0), Rank(3)), ErrUnknownWorker)
}
