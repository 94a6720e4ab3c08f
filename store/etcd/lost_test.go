package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/internal/storetest"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/store/internal/kv"
)

func TestConformanceWhereRequestsAndAnswersAreLost(t *testing.T) {
	t.Parallel()
	seed := uint64(0)
	storetest.Run(t, func(t *testing.T) store.Store {
		seed++
		return newBad(seed, 0.05).join("")
	})
	storetest.RunShared(t, func(t *testing.T) func() store.Store {
		seed++
		b := newBad(seed, 0.05)
		return func() store.Store { return b.join("") }
	})
}

func TestWhatIsSimplyRepeatedIsDoneTwiceByTheBadEtcd(t *testing.T) {
	b := newBad(1, 0.1)
	s := b.join("")
	defer s.Close()
	const n = 200
	for range n {
		o, err := s.begin(t.Context(), "add", "k")
		require.NoError(t, err)
		require.NoError(t, s.try(o, func(c context.Context) error {
			got, err := b.Get(c, "k")
			if err != nil {
				return err
			}
			sum, err := kv.Sum(keptIn(got).value, keptIn(got).there, 1)
			require.NoError(t, err)
			_, err = b.Txn(c).Then(clientv3.OpPut("k", strconv.FormatInt(sum, 10))).Commit()
			return err
		}))
		o.End()
	}
	require.NotEqual(t, strconv.Itoa(n), string(b.now["k"].Value))
}

// deaf makes a bad etcd answer nothing, whatever it does.
const deaf = 0.34

func TestAChangeThatGetsNoAnswerIsUncertainAndAReadIsNot(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			b := newBad(seed, 0)
			s := b.join("")
			defer s.Close()
			require.NoError(t, s.Set(t.Context(), "k", []byte("1")))
			b.set(func() { b.loss = deaf })
			c, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			began := time.Now()
			_, err := s.Add(c, "k", 1)
			for _, want := range []error{store.ErrUncertain, store.ErrTimeout, store.ErrUnreachable, context.DeadlineExceeded} {
				require.ErrorIs(t, err, want)
			}
			require.LessOrEqual(t, time.Since(began), 10*time.Second+grace)
			brief, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err = s.NumKeys(brief)
			require.ErrorIs(t, err, store.ErrTimeout)
			require.NotErrorIs(t, err, store.ErrUncertain)

			b.set(func() { b.loss = 0 })
			require.NoError(t, s.Set(t.Context(), "k", []byte("10")), "the slot is as good as new")
			for i := range 20 { // late ones arrive, and change nothing any more
				n, err := s.Add(t.Context(), "k", 1)
				require.NoError(t, err)
				require.Equal(t, int64(11+i), n)
			}
		})
	}
}

func TestAChangeThatIsRefusedOrCannotBeSentIsNotUncertain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBad(1, 0).join("")
		s.client.Lease, s.client.KV = unreachable{}, unreachable{}
		c, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err := s.Set(c, "k", nil)
		require.ErrorIs(t, err, store.ErrUnreachable)
		require.ErrorIs(t, err, store.ErrTimeout)
		require.ErrorContains(t, err, "connection refused")
		s.receipts.granted(1, time.Now().Add(time.Hour))
		err = s.Set(c, "k", nil)
		require.ErrorIs(t, err, store.ErrTimeout, "as its time is over already")
		c, cancel = context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err = s.Set(c, "k", nil)
		require.ErrorIs(t, err, store.ErrUnreachable)
		require.NotErrorIs(t, err, store.ErrUncertain)
	})
}

// unreachable is an etcd of which no member can be dialled.
type unreachable struct {
	clientv3.KV
	clientv3.Lease
}

type unsendable struct{}

var errDial = status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial tcp: connection refused"`)

func (unreachable) Grant(context.Context, int64) (*clientv3.LeaseGrantResponse, error) {
	return nil, errDial
}
func (unreachable) Txn(context.Context) clientv3.Txn        { return unsendable{} }
func (u unsendable) If(...clientv3.Cmp) clientv3.Txn        { return u }
func (u unsendable) Then(...clientv3.Op) clientv3.Txn       { return u }
func (u unsendable) Else(...clientv3.Op) clientv3.Txn       { return u }
func (u unsendable) Commit() (*clientv3.TxnResponse, error) { return nil, errDial }

// TestNoChangeIsLostOrDoneTwiceThoughLeasesEnd has several stores add and push, while requests and
// answers are lost and leases end, with which receipts are lost.
func TestNoChangeIsLostOrDoneTwiceThoughLeasesEnd(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			b := newBad(seed, 0.05)
			var sure, unsure, pushed, maybe atomic.Int64
			var wg sync.WaitGroup
			count := func(err error, yes, perhaps *atomic.Int64) {
				switch {
				case err == nil:
					yes.Add(1)
				case errors.Is(err, store.ErrUncertain):
					perhaps.Add(1)
				default:
					t.Error(err)
				}
			}
			for range 3 {
				s := b.join("")
				for range 2 {
					wg.Go(func() {
						for i := range 40 {
							_, err := s.Add(t.Context(), "n", 1)
							count(err, &sure, &unsure)
							count(s.Push(t.Context(), "q", nil), &pushed, &maybe)
							if i%10 == 9 {
								b.set(func() { b.expire(b.lease) })
							}
						}
					})
				}
				defer s.Close()
			}
			wg.Wait()
			s := b.join("")
			defer s.Close()
			n, err := s.Add(t.Context(), "n", 0)
			require.NoError(t, err)
			require.GreaterOrEqual(t, n, sure.Load())
			require.LessOrEqual(t, n, sure.Load()+unsure.Load())
			q, err := s.Len(t.Context(), "q")
			require.NoError(t, err)
			require.GreaterOrEqual(t, q, pushed.Load())
			require.LessOrEqual(t, q, pushed.Load()+maybe.Load())
			require.Less(t, unsure.Load()+maybe.Load(), sure.Load()/4, "most is sure")
		})
	}
}

func TestAWatchWhoseHistoryIsCompactedTellsWhatIsThereNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBad(1, 0)
		s := b.join("")
		defer s.Close()
		w, err := s.Watch(t.Context(), "k")
		require.NoError(t, err)
		miss := func(f func()) {
			t.Helper()
			b.set(func() { b.leaderless = true })
			f()
			time.Sleep(10 * time.Second) // of the bubble
			b.set(func() { b.compacted, b.leaderless = b.rev, false })
		}
		put := func(v string) { require.NoError(t, s.Set(t.Context(), "k", []byte(v))) }
		put("1")
		require.Equal(t, store.Change{Kind: store.Created, Key: "k", New: []byte("1")}, <-w.C)
		miss(func() { put("2"); put("3") })
		require.Equal(t, store.Change{Kind: store.Updated, Key: "k", Old: []byte("1"), New: []byte("3"), Dropped: -1}, <-w.C)
		miss(func() { require.NoError(t, s.Set(t.Context(), "other", nil)) })
		put("4")
		require.Equal(t, store.Change{Kind: store.Updated, Key: "k", Old: []byte("3"), New: []byte("4")}, <-w.C, "nothing was missed")
		miss(func() {
			put("5")
			_, err := s.Delete(t.Context(), "k")
			require.NoError(t, err)
		})
		require.Equal(t, store.Change{Kind: store.Deleted, Key: "k", Old: []byte("4"), Dropped: -1}, <-w.C)
		w.Stop()
	})
}

func TestWaitsGoOnOverCompaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBad(1, 0)
		s := b.join("")
		defer s.Close()
		var ended atomic.Int32
		var wg sync.WaitGroup
		for i, wait := range []func() error{
			func() error { return s.Wait(t.Context(), "here", "k", "k2") },
			func() error { _, err := s.Get(t.Context(), "k"); return err },
			func() error { _, err := s.MultiGet(t.Context(), "k", "here"); return err },
			func() error { _, err := s.Pop(t.Context(), "q"); return err },
			func() error { return s.Barrier(t.Context(), "b", 2) },
		} {
			wg.Go(func() {
				if err := wait(); err != nil {
					t.Errorf("wait %d: %v", i, err)
				}
				ended.Add(1)
			})
		}
		require.NoError(t, s.Set(t.Context(), "here", nil))
		for range 3 {
			b.set(func() { b.leaderless = true; close(b.changed); b.changed = make(chan struct{}) })
			require.NoError(t, s.Set(t.Context(), "other", nil))
			time.Sleep(10 * time.Second)
			b.set(func() { b.compacted, b.leaderless = b.rev, false })
			time.Sleep(10 * time.Second)
		}
		require.Zero(t, ended.Load())
		b.set(func() { b.leaderless = true })
		require.NoError(t, s.Push(t.Context(), "q", nil))
		require.NoError(t, s.Barrier(t.Context(), "b", 2))
		require.NoError(t, s.MultiSet(t.Context(), store.Pair{Key: "k"}, store.Pair{Key: "k2"}))
		b.set(func() { b.compacted, b.leaderless = b.rev, false })
		wg.Wait()
	})
}

func TestReadsOfManyKeysAreOfOneMomentThoughItIsCompacted(t *testing.T) {
	b := newBad(3, 0)
	s := b.join("")
	defer s.Close()
	var pairs []store.Pair
	var keys []string
	for i := range 3 * opsMost {
		keys = append(keys, fmt.Sprint("k", i))
		pairs = append(pairs, store.Pair{Key: keys[i]})
	}
	set := func(n int) {
		for i := range pairs {
			pairs[i].Value = []byte(strconv.Itoa(n))
		}
		require.NoError(t, s.MultiSet(t.Context(), pairs...))
	}
	set(0)
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(over)
		for n := range 60 {
			set(n)
			if n%3 == 0 {
				b.set(func() { b.compacted = b.rev })
			}
		}
	})
	for done := false; !done; {
		select {
		case <-over:
			done = true
		default:
		}
		values, err := s.MultiGet(t.Context(), keys...)
		require.NoError(t, err)
		for _, v := range values {
			require.Equal(t, values[0], v)
		}
	}
	wg.Wait()
}

func TestTheNumberOfWatchesIsBounded(t *testing.T) {
	leak.Check(t)
	s := newBad(1, 0).join("")
	defer s.Close()
	s.cfg.Limits.Keys = 2
	a, err := s.Watch(t.Context(), "a")
	require.NoError(t, err)
	_, err = s.Watch(t.Context(), "a")
	require.NoError(t, err)
	_, err = s.Watch(t.Context(), "b")
	require.ErrorIs(t, err, store.ErrTooLarge)
	a.Stop()
	_, err = s.Watch(t.Context(), "b")
	require.NoError(t, err)
}
