package storetest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/store"
)

// short bounds what is expected to time out.
const short = 25 * time.Millisecond

// Part is what a store may be unable to do, as PyTorch 1.13's server is. Its operations say
// ErrUnsupported then.
type Part string

// The parts of a Store that are not in every PyTorch.
const (
	Append   Part = "append"
	Multi    Part = "multi" // MultiGet and MultiSet
	List     Part = "list"
	Queues   Part = "queues"
	Barriers Part = "barriers"
	Watches  Part = "watches"
	Wakes    Part = "wakes"  // a CompareSet that makes a key ends the waiting for it
	Errors   Part = "errors" // an Add to what is no number says so also if others change it at that moment
)

func setOf(without []Part) map[Part]bool {
	m := map[Part]bool{}
	for _, p := range without {
		m[p] = true
	}
	return m
}

// Run runs the suite for one client. open makes an empty store with default limits; the suite
// closes it. It is not asked for the parts that it is said to be without.
func Run(t *testing.T, open func(t *testing.T) store.Store, without ...Part) {
	unsupported := setOf(without)
	for _, tc := range []struct {
		name string
		test func(t *testing.T, s store.Store)
		part Part
	}{
		{"SetGetCheckAndCountAsInPyTorchsSuite", setGetCheck, ""},
		{"CompareSetAnswersAsInPyTorchsSuite", compareSet, ""},
		{"AnEmptyValueIsAValue", emptyValue, ""},
		{"AddReadsNumbersAsStollAndWrapsAround", addNumbers, ""},
		{"AddLeavesAloneWhatIsNoNumber", addNoNumber, ""},
		{"DeleteSaysWhetherTheKeyWasThere", deleteSays, ""},
		{"NoKeysAreAlwaysThere", noKeys, ""},
		{"ARepeatedKeyIsAwaitedOnce", repeatedKeys, ""},
		{"AnyBytesButNoneMakeAKey", strangeKeys, ""},
		{"LimitsHoldForEveryOperation", limits, ""},
		{"ATimeoutNamesTheKeysAndHarmsNothing", timeouts, ""},
		{"ACancelledContextEndsAWait", cancelled, ""},
		{"AContextThatIsOverIsRefused", refused, ""},
		{"CloseEndsWaitersAndLaterCalls", closing, ""},
		{"ValuesAreCopiedInAndOut", ownership, ""},
		{"RandomCallsAgreeWithAMap", againstMap, ""},
		{"AWaitTimesOutAsInPyTorchsSuite", simpleWait, ""},
		{"NumKeysFollowsSetAndDeleteAsInPyTorchsSuite", numKeysDelKeys, ""},
		{"AppendAddsToTheEndAsInPyTorchsSuite", appends, Append},
		{"AppendDoesNotPassTheLimit", appendsWithinLimits, Errors},
		{"MultiSetAndMultiGetAsInPyTorchsSuite", multi, Multi},
		{"ThousandsOfKeysInOneCall", multiMany, Multi},
		{"AMultiSetThatIsRefusedStoresNothing", multiRefused, Multi},
		{"MultiGetWaitsUntilAllAreThereAtOnce", multiGetWaits, Multi},
		{"ManyValuesAreCopiedInAndOut", multiOwnership, Multi},
		{"ListKeysIsSortedAndHasNoneOfTheProtocols", lists, List},
		{"AQueueIsFirstInFirstOut", firstInFirstOut, Queues},
		{"QueuesAndValuesHaveTheirKeysApart", queuesApart, Queues},
		{"PopAndWaitEndWithAPush", popWaits, Queues},
		{"ACancelledPopTakesNothing", cancelledPop, Queues},
		{"LimitsHoldForQueues", queueLimits, Queues},
		{"QueuedValuesAreCopiedIn", queueOwnership, Queues},
		{"ABarrierOfOneAndOneNotStayed", barrierAlone, Barriers},
		{"AWatchTellsEveryChangeInOrderWithOldAndNew", watchTells, Watches},
		{"AWatchTellsOfAppendMultiSetAndBarrierAndNotOfQueues", watchTellsOfTheRest, Watches},
		{"AWatchEndsByStopOrItsContext", watchStops, Watches},
		{"AWatchThatIsStoppedLeavesNothingBehind", watchLeavesNothing, Watches},
		{"AWatchEndsWithTheStore", watchEndsWithTheStore, Watches},
		{"ASlowReaderOfAWatchIsToldWhatIsMissing", watchSlowly, Watches},
		{"ChangesBelongToTheirReader", watchOwnership, Watches},
		{"AWatchOfABadKeyIsRefused", watchRefuses, Watches},
	} {
		if unsupported[tc.part] {
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			leak.Check(t)
			s := &punctual{open(t), overrun, t.Errorf}
			defer func() { require.NoError(t, s.Close()) }()
			tc.test(t, s)
		})
	}
}

// within is a context for what must not take long, and never does unless a test fails.
func within(t *testing.T) context.Context {
	c, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return c
}

func briefly(t *testing.T) context.Context {
	c, cancel := context.WithTimeout(context.Background(), short)
	t.Cleanup(cancel)
	return c
}

func set(t *testing.T, s store.Store, key, value string) {
	t.Helper()
	require.NoError(t, s.Set(within(t), key, []byte(value)))
}

func requireValue(t *testing.T, s store.Store, key, want string) {
	t.Helper()
	v, err := s.Get(within(t), key)
	require.NoError(t, err)
	require.Equal(t, want, string(v))
	require.NotNil(t, v)
}

func requireCheck(t *testing.T, s store.Store, want bool, keys ...string) {
	t.Helper()
	ok, err := s.Check(within(t), keys...)
	require.NoError(t, err)
	require.Equal(t, want, ok)
}

func requireCAS(t *testing.T, s store.Store, key, expected, desired, want string) {
	t.Helper()
	v, err := s.CompareSet(within(t), key, []byte(expected), []byte(desired))
	require.NoError(t, err)
	require.Equal(t, want, string(v))
}

func count(t *testing.T, s store.Store) int64 {
	t.Helper()
	n, err := s.NumKeys(within(t))
	require.NoError(t, err)
	return n
}

func setGetCheck(t *testing.T, s store.Store) {
	c, before := within(t), count(t, s)
	for _, n := range []int64{1, 2, 3} {
		_, err := s.Add(c, "key", n)
		require.NoError(t, err)
	}
	set(t, s, "key0", "value0")
	set(t, s, "key1", "value1")
	set(t, s, "key1", "value2")
	for n := int64(1); n <= 6; n++ {
		sum, err := s.Add(c, "key3", n)
		require.NoError(t, err)
		require.Equal(t, n*(n+1)/2, sum)
	}
	set(t, s, "-key", "minus")
	require.Equal(t, before+5, count(t, s))
	requireValue(t, s, "key", "6")
	requireValue(t, s, "key0", "value0")
	requireValue(t, s, "key1", "value2")
	requireValue(t, s, "key3", "21")
	requireValue(t, s, "-key", "minus")
	requireCheck(t, s, true, "key", "key1", "-key")
	requireCheck(t, s, false, "key", "key2")
	was, err := s.Delete(c, "-key")
	require.NoError(t, err)
	require.True(t, was)
	requireCheck(t, s, false, "-key")
	requireCheck(t, s, true, "key")
	require.Equal(t, before+4, count(t, s))
}

func compareSet(t *testing.T, s store.Store) {
	requireCAS(t, s, "k", "wrong", "x", "wrong") // the answer that lies: nothing was stored
	requireCheck(t, s, false, "k")
	set(t, s, "k", "old")
	requireCAS(t, s, "k", "wrong", "x", "old")
	requireCAS(t, s, "k", "", "x", "old")
	requireCAS(t, s, "k", "old", "new", "new")
	requireValue(t, s, "k", "new")
	requireCAS(t, s, "fresh", "", "made", "made")
	requireValue(t, s, "fresh", "made")
}

func emptyValue(t *testing.T, s store.Store) {
	require.NoError(t, s.Set(within(t), "empty", nil))
	requireCheck(t, s, true, "empty")
	requireValue(t, s, "empty", "")
	requireCAS(t, s, "empty", "", "full", "full")
	requireCAS(t, s, "empty", "full", "", "")
	requireCheck(t, s, true, "empty")
}

func addNumbers(t *testing.T, s store.Store) {
	for _, tc := range []struct {
		was        string
		delta, sum int64
	}{
		{" 12xyz", 1, 13}, {"\t\n-5 6", 1, -4}, {"+7", 0, 7}, {"-2", 2, 0},
		{"9223372036854775807", 1, -9223372036854775808}, {"-9223372036854775808", -1, 9223372036854775807},
	} {
		set(t, s, "n", tc.was)
		sum, err := s.Add(within(t), "n", tc.delta)
		require.NoError(t, err)
		require.Equal(t, tc.sum, sum)
		sum, err = s.Add(within(t), "n", 0)
		require.NoError(t, err)
		require.Equal(t, tc.sum, sum)
	}
	sum, err := s.Add(within(t), "none", -7)
	require.NoError(t, err)
	require.Equal(t, int64(-7), sum)
	requireValue(t, s, "none", "-7")
}

func addNoNumber(t *testing.T, s store.Store) {
	for _, v := range []string{"", "x", "-", "+-1", " ", "9223372036854775808", "99999999999999999999"} {
		set(t, s, "n", v)
		_, err := s.Add(within(t), "n", 1)
		require.ErrorIs(t, err, store.ErrNotANumber, "value %q", v)
		requireValue(t, s, "n", v)
	}
}

func deleteSays(t *testing.T, s store.Store) {
	for _, want := range []bool{false, true, false} {
		was, err := s.Delete(within(t), "k")
		require.NoError(t, err)
		require.Equal(t, want, was)
		if !want {
			set(t, s, "k", "v")
		}
	}
	_, err := s.Delete(within(t), "k")
	require.NoError(t, err)
	_, err = s.Get(briefly(t), "k")
	require.ErrorIs(t, err, store.ErrTimeout)
}

func noKeys(t *testing.T, s store.Store) {
	requireCheck(t, s, true)
	require.NoError(t, s.Wait(within(t)))
}

func repeatedKeys(t *testing.T, s store.Store) {
	set(t, s, "k", "v")
	require.NoError(t, s.Wait(within(t), "k", "k"))
	requireCheck(t, s, true, "k", "k")
	done := make(chan error, 1)
	go func() { done <- s.Wait(within(t), "late", "late", "k") }()
	set(t, s, "late", "v")
	require.NoError(t, <-done)
}

func strangeKeys(t *testing.T, s store.Store) {
	before := count(t, s)
	keys := []string{"/", "//", "-/k", "k\x00", "\xff\xfe", "init/", "cleanup/", "a b", strings.Repeat("k", 4096)}
	for i, k := range keys {
		set(t, s, k, string(rune('a'+i)))
	}
	for i, k := range keys {
		requireValue(t, s, k, string(rune('a'+i)))
	}
	require.Equal(t, before+int64(len(keys)), count(t, s))
}

func simpleWait(t *testing.T, s store.Store) {
	require.Regexp(t, `[t -i]imeout`, s.Wait(briefly(t), "bad key").Error())
	set(t, s, "good key", "v")
	require.NoError(t, s.Wait(within(t), "good key"))
}

func numKeysDelKeys(t *testing.T, s store.Store) {
	before := count(t, s)
	for i := range 4 {
		set(t, s, fmt.Sprint("key", i), "v")
	}
	require.Equal(t, before+4, count(t, s))
	for i, want := range []bool{true, false} {
		was, err := s.Delete(within(t), "key0")
		require.NoError(t, err)
		require.Equal(t, want, was, i)
		require.Equal(t, before+3, count(t, s))
	}
	_, err := s.Get(briefly(t), "key0")
	require.ErrorIs(t, err, store.ErrTimeout)
}
