package storetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/store"
)

func watch(t *testing.T, s store.Store, key string) *store.Watch {
	t.Helper()
	w, err := s.Watch(context.Background(), key)
	require.NoError(t, err)
	t.Cleanup(w.Stop)
	return w
}

// next is the next change, which must come.
func next(t *testing.T, w *store.Watch) store.Change {
	t.Helper()
	select {
	case ch, open := <-w.C:
		require.True(t, open, "the watch has ended: %v", w.Err())
		return ch
	case <-within(t).Done():
		require.Fail(t, "no change came")
	}
	panic("unreachable")
}

// ended waits for a watch's end and returns its error.
func ended(t *testing.T, w *store.Watch) error {
	t.Helper()
	for {
		select {
		case _, open := <-w.C:
			if !open {
				return w.Err()
			}
		case <-within(t).Done():
			require.Fail(t, "the watch has not ended")
		}
	}
}

// watchTells lists what a watch must tell of each operation.
func watchTells(t *testing.T, s store.Store) {
	c := within(t)
	set(t, s, "k", "before")
	set(t, s, "other", "v")
	w := watch(t, s, "k")
	say := func(kind store.ChangeKind, old, value string) {
		t.Helper()
		want := store.Change{Kind: kind, Key: "k", Old: []byte(old), New: []byte(value)}
		if kind == store.Created {
			want.Old = nil
		} else if kind == store.Deleted {
			want.New = nil
		}
		require.Equal(t, want, next(t, w))
	}
	do := func(_ any, err error) { t.Helper(); require.NoError(t, err) }
	set(t, s, "k", "1")
	say(store.Updated, "before", "1")
	set(t, s, "k", "1")
	say(store.Updated, "1", "1")
	do(s.Add(c, "k", 2))
	set(t, s, "other", "no news")
	do(s.CompareSet(c, "k", []byte("wrong"), []byte("x")))
	do(s.CompareSet(c, "k", []byte("3"), []byte("4")))
	say(store.Updated, "1", "3")
	say(store.Updated, "3", "4")
	do(s.Delete(c, "k"))
	do(s.Delete(c, "k"))
	do(s.CompareSet(c, "k", []byte("wrong"), []byte("x")))
	set(t, s, "k", "")
	say(store.Deleted, "4", "")
	say(store.Created, "", "")
	do(s.CompareSet(c, "k", nil, nil))
	say(store.Updated, "", "")
	do(s.Delete(c, "k"))
	say(store.Deleted, "", "")
	do(s.Add(c, "k", 7))
	say(store.Created, "", "7")
	do(s.Delete(c, "k"))
	do(s.CompareSet(c, "k", nil, []byte("made")))
	say(store.Deleted, "7", "")
	say(store.Created, "", "made")
	set(t, s, "k", "last")
	say(store.Updated, "made", "last")
}

func watchTellsOfTheRest(t *testing.T, s store.Store) {
	c := within(t)
	w := watch(t, s, "k")
	grow := func(by, to string) error {
		err := s.Append(c, "k", []byte(by))
		if errors.Is(err, store.ErrUnsupported) {
			return s.Set(c, "k", []byte(to))
		}
		return err
	}
	var want []string
	for _, step := range []struct {
		err  error
		says string
	}{
		{grow("1", "1"), `created "" "1"`},
		{grow("2", "12"), `updated "1" "12"`},
		{s.Push(c, "k", []byte("queued")), ""},
		{s.MultiSet(c, store.Pair{Key: "a"}, store.Pair{Key: "k", Value: []byte("3")}), `updated "12" "3"`},
		{s.Barrier(c, "k", 1), `updated "3" "4"`},
	} {
		if !errors.Is(step.err, store.ErrUnsupported) {
			require.NoError(t, step.err)
			want = append(want, step.says)
		}
	}
	for _, says := range want {
		if says != "" {
			ch := next(t, w)
			require.Equal(t, says, fmt.Sprintf("%v %q %q", ch.Kind, ch.Old, ch.New))
		}
	}
}

func watchStops(t *testing.T, s store.Store) {
	w := watch(t, s, "k")
	twin := watch(t, s, "k")
	set(t, s, "k", "unread")
	w.Stop()
	_, open := <-w.C
	require.False(t, open)
	require.ErrorIs(t, w.Err(), context.Canceled)
	w.Stop()
	set(t, s, "k", "2")
	require.Equal(t, "unread", string(next(t, twin).New))
	require.Equal(t, "2", string(next(t, twin).New))
	require.NoError(t, twin.Err())

	why := errors.New("seen enough")
	c, cancel := context.WithCancelCause(context.Background())
	w, err := s.Watch(c, "k")
	require.NoError(t, err)
	cancel(why)
	require.ErrorIs(t, ended(t, w), why)
	w.Stop()
	twin.Stop()
	set(t, s, "k", "3")
	requireValue(t, s, "k", "3")
}

func watchLeavesNothing(t *testing.T, s store.Store) {
	keeps := watch(t, s, "k") // what all Watches of a store share may stay as long as there is one
	t.Run("Stopped", func(t *testing.T) {
		leak.Check(t)
		for range 5 {
			w, err := s.Watch(context.Background(), "k")
			require.NoError(t, err)
			set(t, s, "k", "v")
			next(t, w)
			w.Stop()
		}
	})
	next(t, keeps)
}

func watchEndsWithTheStore(t *testing.T, s store.Store) {
	set(t, s, "k", "v")
	w := watch(t, s, "k")
	require.NoError(t, s.Close())
	require.ErrorIs(t, ended(t, w), store.ErrClosed)
}

// watchSlowly reads nothing before all is written: what is missing is counted, what comes is in
// order, and the last change comes in any case.
func watchSlowly(t *testing.T, s store.Store) {
	const n = 1500
	w := watch(t, s, "k")
	for i := range n {
		set(t, s, "k", strconv.Itoa(i))
	}
	last, missing, unknown := -1, 0, false
	for last < n-1 {
		ch := next(t, w)
		i, err := strconv.Atoi(string(ch.New))
		require.NoError(t, err)
		if unknown = unknown || ch.Dropped < 0; !unknown {
			missing += ch.Dropped
			require.Equal(t, last+1+ch.Dropped, i)
		}
		require.Greater(t, i, last)
		last = i
	}
	if !unknown {
		t.Logf("%d of %d changes were dropped", missing, n)
	}
}

func watchOwnership(t *testing.T, s store.Store) {
	set(t, s, "k", "old")
	w, twin := watch(t, s, "k"), watch(t, s, "k")
	set(t, s, "k", "new")
	ch := next(t, w)
	ch.Old[0], ch.New[0] = 'X', 'X'
	_ = append(ch.New, 'Y')
	requireValue(t, s, "k", "new")
	ch = next(t, twin)
	require.Equal(t, "old new", string(ch.Old)+" "+string(ch.New))
}

func watchRefuses(t *testing.T, s store.Store) {
	for _, key := range []string{"", strings.Repeat("k", 8<<10)} {
		_, err := s.Watch(within(t), key)
		require.ErrorIs(t, err, store.ErrBadKey)
	}
}

// watchAtOnce sees what happens directly after Watch has returned, and nothing of before.
func watchAtOnce(t *testing.T, clients []store.Store) {
	for i := range 20 {
		set(t, clients[(i+1)%4], "k", "before")
		w := watch(t, clients[i%4], "k")
		set(t, clients[(i+2)%4], "k", strconv.Itoa(i))
		ch := next(t, w)
		require.Equal(t, store.Change{Kind: store.Updated, Key: "k", Old: []byte("before"), New: []byte(strconv.Itoa(i))}, ch)
		w.Stop()
	}
}

// watchOthers has several clients change a key in all ways while one watches: every change
// continues the one before.
func watchOthers(t *testing.T, clients []store.Store) {
	c := within(t)
	w := watch(t, clients[0], "k")
	inParallel(t, clients[1:], func(i int, s store.Store) (err error) {
		for n := range 30 {
			switch (i + n) % 4 {
			case 0:
				err = s.Set(c, "k", []byte("10"))
			case 1:
				_, err = s.Delete(c, "k")
			default:
				_, err = s.Add(c, "k", int64(i+1))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	set(t, clients[1], "k", "end")
	var now []byte
	for string(now) != "end" {
		ch := next(t, w)
		require.Zero(t, ch.Dropped)
		require.Equal(t, string(now), string(ch.Old))
		require.Equal(t, now == nil, ch.Kind == store.Created, "%v %q %q", ch.Kind, ch.Old, ch.New)
		require.Equal(t, ch.New == nil, ch.Kind == store.Deleted)
		now = ch.New
	}
}

// watchCalls is for everything.
func watchCalls(c context.Context, s store.Store) []error {
	w, err := s.Watch(c, "k")
	if err == nil {
		w.Stop()
	}
	return []error{err}
}
