package storetest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/store"
)

// broken is a store with one fault.
type broken struct {
	store.Store
	fault string
	len   atomic.Int64
}

func (b *broken) Add(c context.Context, key string, delta int64) (int64, error) {
	switch b.fault {
	case "adds are lost":
		n, err := b.Store.Add(c, key, 0)
		yield(20)
		return n + delta, errors.Join(err, b.Store.Set(c, key, []byte(strconv.FormatInt(n+delta, 10))))
	case "a cancelled change happens":
		n, err := b.Store.Add(context.WithoutCancel(c), key, delta)
		return n, errors.Join(err, c.Err())
	}
	return b.Store.Add(c, key, delta)
}

func (b *broken) CompareSet(c context.Context, key string, expected, desired []byte) ([]byte, error) {
	if b.fault == "a missing key equals anything" {
		if there, err := b.Check(c, key); err == nil && !there {
			return desired, b.Set(c, key, desired)
		}
	}
	return b.Store.CompareSet(c, key, expected, desired)
}

func (b *broken) Len(c context.Context, key string) (int64, error) {
	n, err := b.Store.Len(c, key)
	if b.fault == "an answer is older than its question" {
		n = b.len.Swap(n)
	}
	return n, err
}

func (b *broken) NumKeys(c context.Context) (int64, error) {
	n, err := b.Store.NumKeys(c)
	if queued, _ := b.Len(c, "both"); b.fault == "queues are counted" {
		n += queued
	}
	return n, err
}

func (b *broken) MultiGet(c context.Context, keys ...string) ([][]byte, error) {
	if b.fault != "a MultiGet is many Gets" {
		return b.Store.MultiGet(c, keys...)
	}
	values := make([][]byte, len(keys))
	for i, k := range keys {
		var err error
		if values[i], err = b.Get(c, k); err != nil {
			return nil, err
		}
		yield(20)
	}
	return values, nil
}

func (b *broken) MultiSet(c context.Context, pairs ...store.Pair) error {
	if b.fault != "a MultiSet is many Sets" {
		return b.Store.MultiSet(c, pairs...)
	}
	for _, p := range pairs {
		if err := b.Set(c, p.Key, p.Value); err != nil {
			return err
		}
	}
	return nil
}

func (b *broken) Pop(c context.Context, key string) ([]byte, error) {
	v, err := b.Store.Pop(c, key)
	if b.fault == "a cancelled Pop takes" && err == nil && c.Err() != nil {
		return nil, c.Err()
	}
	if b.fault == "a value is popped twice" && err == nil && string(v) == "0 7" {
		err = b.Push(c, key, v)
	}
	return v, err
}

func (b *broken) Barrier(c context.Context, key string, world int) error {
	if b.fault == "a barrier lets the last but one through" {
		world--
	}
	return b.Store.Barrier(c, key, world)
}

func (b *broken) Watch(c context.Context, key string) (*store.Watch, error) {
	below, err := b.Store.Watch(c, key)
	if err != nil || b.fault != "a watch misses every tenth change" && b.fault != "a watch is left behind" {
		return below, err
	}
	w, send, end := store.NewWatch(c, func() {
		if b.fault != "a watch is left behind" {
			below.Stop()
		}
	})
	go func() {
		n := 0
		for ch := range below.C {
			if n++; n%10 > 0 || b.fault == "a watch is left behind" {
				send(ch)
			}
		}
		end(below.Err())
	}()
	return w, nil
}

// The suite runs over each broken store in a process of its own, as it is to fail there.
func TestTheSuiteFindsEveryFault(t *testing.T) {
	const env = "WEFT_STORETEST_FAULT"
	if fault := os.Getenv(env); fault != "" {
		open := func(*testing.T) func() store.Store {
			s := &broken{Store: store.NewMemory(), fault: fault}
			return func() store.Store { return s }
		}
		t.Run("Run", func(t *testing.T) { Run(t, func(t *testing.T) store.Store { return open(t)() }) })
		t.Run("RunShared", func(t *testing.T) { RunShared(t, open) })
		return
	}
	for fault, by := range map[string]string{
		"adds are lost":                           "RunShared/ConcurrentAddsAllCount",
		"a cancelled change happens":              "RunShared/AChangeThatFailedHasNotHappenedUnlessItSaysItMayHave",
		"a missing key equals anything":           "Run/CompareSetAnswersAsInPyTorchsSuite",
		"an answer is older than its question":    "RunShared/RandomCallsOfAllAreAsUnderOneLock",
		"queues are counted":                      "Run/QueuesAndValuesHaveTheirKeysApart",
		"a MultiGet is many Gets":                 "RunShared/AMultiGetSeesAllOfAMultiSetOrNothing",
		"a MultiSet is many Sets":                 "Run/AMultiSetThatIsRefusedStoresNothing",
		"a cancelled Pop takes":                   "Run/ACancelledPopTakesNothing",
		"a value is popped twice":                 "RunShared/EachQueuedValueGoesToOneTaker",
		"a barrier lets the last but one through": "RunShared/ABarrierHoldsAndReleasesAll",
		"a watch misses every tenth change":       "RunShared/AWatchSeesTheChangesOfOthersAsOneChain",
		"a watch is left behind":                  "Run/AWatchThatIsStoppedLeavesNothingBehind",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			for range 10 { // what needs two at the same moment may need another try
				cmd := exec.Command(os.Args[0], "-test.run=^TestTheSuiteFindsEveryFault$/"+by)
				cmd.Env = append(os.Environ(), env+"="+fault)
				out, err := cmd.CombinedOutput()
				if err != nil {
					require.Contains(t, string(out), "--- FAIL: TestTheSuiteFindsEveryFault/"+by)
					return
				}
			}
			require.Fail(t, "the suite did not find it")
		})
	}
}
