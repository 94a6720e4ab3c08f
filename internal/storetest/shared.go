package storetest

import (
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/store"
)

// RunShared runs the suite for several clients. open makes an empty store and returns a function
// that makes one more client of it with each call; it may return the same one again. The suite
// closes clients at the end of a test only.
func RunShared(t *testing.T, open func(t *testing.T) (join func() store.Store), without ...Part) {
	unsupported := setOf(without)
	for _, tc := range []struct {
		name string
		test func(t *testing.T, clients []store.Store)
		part Part
	}{
		{"AWaiterIsWokenByAnotherClientsSet", wokenBySet, ""},
		{"AWaiterIsWokenByAddAndCompareSet", wokenByOthers, Wakes},
		{"WhatOneHasSetTheOtherSees", seen, ""},
		{"ConcurrentAddsAllCount", addsCount, ""},
		{"OfManyCompareSetsOneWins", oneWins, ""},
		{"ABarrierByHandHoldsAndReleasesAll", barrier, ""},
		{"RandomCallsOfAllAreAsUnderOneLock", func(t *testing.T, clients []store.Store) { asUnderOneLock(t, clients, unsupported) }, ""},
		{"RandomCallsThatWaitAreAsUnderOneLock", func(t *testing.T, clients []store.Store) { waitingUnderOneLock(t, clients, unsupported) }, ""},
		{"AChangeThatFailedHasNotHappenedUnlessItSaysItMayHave", func(t *testing.T, clients []store.Store) { cancelledChanges(t, clients, unsupported) }, ""},
		{"OfACrowdThatWaitsThoseWhoStayAreServed", crowd, ""},
		{"ConcurrentAppendsAllCountOnce", appendsCount, Append},
		{"AMultiGetSeesAllOfAMultiSetOrNothing", multiIsAtomic, Multi},
		{"AWaiterIsWokenByAppendAndMultiSet", wokenByMulti, Multi},
		{"EachQueuedValueGoesToOneTaker", oneTakerEach, Queues},
		{"APushServesOneOfThoseWhoWait", pushServesOne, Queues},
		{"AValueThatNobodyTookIsForWhoStays", popsThatGiveUp, Queues},
		{"ABarrierHoldsAndReleasesAll", barrierHolds, Barriers},
		{"AWatchSeesWhatHappensAsSoonAsItIs", watchAtOnce, Watches},
		{"AWatchSeesTheChangesOfOthersAsOneChain", watchOthers, Watches},
	} {
		if unsupported[tc.part] {
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			leak.Check(t)
			join := open(t)
			clients := make([]store.Store, 4)
			for i := range clients {
				clients[i] = &punctual{join(), overrun, t.Errorf}
			}
			defer func() {
				for _, s := range clients {
					require.NoError(t, s.Close())
				}
			}()
			tc.test(t, clients)
		})
	}
}

// inParallel runs f for every client and returns when all have.
func inParallel(t *testing.T, clients []store.Store, f func(i int, s store.Store) error) {
	t.Helper()
	errs := make([]error, len(clients))
	var wg sync.WaitGroup
	for i, s := range clients {
		wg.Go(func() { errs[i] = f(i, s) })
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
}

func wokenBySet(t *testing.T, clients []store.Store) {
	c := within(t)
	inParallel(t, clients, func(i int, s store.Store) error {
		switch i {
		case 0:
			if err := s.Set(c, "a", []byte("1")); err != nil {
				return err
			}
			return s.Set(c, "b", []byte("2"))
		case 1:
			v, err := s.Get(c, "b")
			if err == nil && string(v) != "2" {
				return fmt.Errorf("got %q", v)
			}
			return err
		}
		return s.Wait(c, "a", "b")
	})
}

func wokenByOthers(t *testing.T, clients []store.Store) {
	c := within(t)
	inParallel(t, clients, func(i int, s store.Store) (err error) {
		switch i {
		case 0:
			_, err = s.Add(c, "sum", 1)
		case 1:
			_, err = s.CompareSet(c, "cas", nil, []byte("v"))
		default:
			err = s.Wait(c, "sum", "cas")
		}
		return err
	})
}

func seen(t *testing.T, clients []store.Store) {
	for i := range 20 {
		a, b := clients[i%4], clients[(i+1)%4]
		want := strconv.Itoa(i)
		set(t, a, "k", want)
		requireValue(t, b, "k", want)
		_, err := b.Delete(within(t), "k")
		require.NoError(t, err)
		requireCheck(t, a, false, "k")
	}
}

func addsCount(t *testing.T, clients []store.Store) {
	c := within(t)
	const each = 25
	inParallel(t, clients, func(_ int, s store.Store) error {
		for range each {
			if _, err := s.Add(c, "n", 1); err != nil {
				return err
			}
		}
		return nil
	})
	requireValue(t, clients[0], "n", strconv.Itoa(each*len(clients)))
}

func oneWins(t *testing.T, clients []store.Store) {
	c := within(t)
	won := make([]bool, len(clients))
	inParallel(t, clients, func(i int, s store.Store) error {
		me := strconv.Itoa(i)
		v, err := s.CompareSet(c, "leader", nil, []byte(me))
		won[i] = string(v) == me
		return err
	})
	winners := 0
	for i := range won {
		if won[i] {
			winners++
			requireValue(t, clients[0], "leader", strconv.Itoa(i))
		}
	}
	require.Equal(t, 1, winners)
}

func barrier(t *testing.T, clients []store.Store) {
	c := within(t)
	inParallel(t, clients, func(_ int, s store.Store) error {
		n, err := s.Add(c, "members", 1)
		if err == nil && n == int64(len(clients)) {
			err = s.Set(c, "last", nil)
		}
		if err == nil {
			err = s.Wait(c, "last")
		}
		if v, _ := s.Get(c, "members"); err == nil && string(v) != strconv.Itoa(len(clients)) {
			err = fmt.Errorf("passed the barrier with %q members", v)
		}
		return err
	})
}
