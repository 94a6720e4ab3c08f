package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/store"
)

func appends(t *testing.T, s store.Store) {
	c := within(t)
	set(t, s, "there", "po")
	for _, k := range []string{"there", "missing"} {
		if k == "missing" {
			require.NoError(t, s.Append(c, k, []byte("po")))
		}
		require.NoError(t, s.Append(c, k, []byte("tato")))
		requireValue(t, s, k, "potato")
	}
	require.NoError(t, s.Append(c, "empty", nil))
	requireValue(t, s, "empty", "")
	set(t, s, "n", "1")
	require.NoError(t, s.Append(c, "n", []byte("2")))
	sum, err := s.Add(c, "n", 1)
	require.NoError(t, err)
	require.Equal(t, int64(13), sum)
}

func appendsWithinLimits(t *testing.T, s store.Store) {
	c, full := within(t), make([]byte, 8<<20)
	require.NoError(t, s.Set(c, "k", full[1:]))
	err := s.Append(c, "k", []byte("ab"))
	require.ErrorIs(t, err, store.ErrTooLarge)
	require.NotErrorIs(t, err, store.ErrUncertain)
	require.NoError(t, s.Append(c, "k", []byte("c")))
	v, err := s.Get(c, "k")
	require.NoError(t, err)
	full[len(full)-1] = 'c'
	require.True(t, bytes.Equal(full, v))
}

func multi(t *testing.T, s store.Store) {
	c := within(t)
	require.NoError(t, s.MultiSet(c, store.Pair{Key: "foo", Value: []byte("po")}, store.Pair{Key: "bar", Value: []byte("tato")}))
	requireValue(t, s, "foo", "po")
	requireValue(t, s, "bar", "tato")
	requireValues(t, s, []string{"po", "tato"}, "foo", "bar")
	requireValues(t, s, []string{"tato", "po", "tato"}, "bar", "foo", "bar")
	requireValues(t, s, []string{})
	require.NoError(t, s.MultiSet(c))
	require.NoError(t, s.MultiSet(c, store.Pair{Key: "foo", Value: []byte("1")}, store.Pair{Key: "empty"}, store.Pair{Key: "foo", Value: []byte("2")}))
	requireValues(t, s, []string{"2", ""}, "foo", "empty")
}

func requireValues(t *testing.T, s store.Store, want []string, keys ...string) {
	t.Helper()
	values, err := s.MultiGet(within(t), keys...)
	require.NoError(t, err)
	got := make([]string, len(values))
	for i, v := range values {
		got[i] = string(v)
		require.NotNil(t, v)
	}
	require.Equal(t, want, got)
}

func multiMany(t *testing.T, s store.Store) {
	const n = 2000
	pairs, keys, values := make([]store.Pair, n), make([]string, n), make([]string, n)
	for i := range pairs {
		keys[i], values[i] = "key"+strconv.Itoa(i), strings.Repeat("v", i%50)
		pairs[i] = store.Pair{Key: keys[i], Value: []byte(values[i])}
	}
	before := count(t, s)
	require.NoError(t, s.MultiSet(within(t), pairs...))
	require.Equal(t, before+n, count(t, s))
	requireCheck(t, s, true, keys...)
	requireValues(t, s, values, keys...)
}

func multiRefused(t *testing.T, s store.Store) {
	c, a := within(t), store.Pair{Key: "a", Value: []byte("1")}
	huge, half := make([]byte, 8<<20+1), make([]byte, 5<<20)
	for name, tc := range map[string]struct {
		pairs []store.Pair
		want  error
	}{
		"an empty key":             {[]store.Pair{a, {}}, store.ErrBadKey},
		"a long key":               {[]store.Pair{a, {Key: strings.Repeat("k", 8<<10)}}, store.ErrTooLarge},
		"a long value":             {[]store.Pair{a, {Key: "b", Value: huge}}, store.ErrTooLarge},
		"long values together":     {[]store.Pair{a, {Key: "b", Value: half}, {Key: "c", Value: half}}, store.ErrTooLarge},
		"more than can be counted": {slices.Repeat([]store.Pair{a}, 128<<10+1), store.ErrTooLarge},
	} {
		err := s.MultiSet(c, tc.pairs...)
		require.ErrorIs(t, err, tc.want, name)
		require.NotErrorIs(t, err, store.ErrUncertain, name)
	}
	requireCheck(t, s, false, "a")
	_, err := s.MultiGet(c, "a", "")
	require.ErrorIs(t, err, store.ErrBadKey)
	_, err = s.MultiGet(c, slices.Repeat([]string{"a"}, 128<<10+1)...)
	require.ErrorIs(t, err, store.ErrTooLarge)
}

func multiGetWaits(t *testing.T, s store.Store) {
	type result struct {
		values [][]byte
		err    error
	}
	done := make(chan result, 1)
	go func() {
		values, err := s.MultiGet(within(t), "a", "b", "a")
		done <- result{values, err}
	}()
	set(t, s, "a", "early")
	_, err := s.Delete(within(t), "a")
	require.NoError(t, err)
	set(t, s, "b", "b")
	set(t, s, "a", "late")
	r := <-done
	require.NoError(t, r.err)
	require.Equal(t, "late b late", string(bytes.Join(r.values, []byte(" "))))
	_, err = s.MultiGet(briefly(t), "a", "missing")
	require.ErrorIs(t, err, store.ErrTimeout)
	require.Regexp(t, `wait timeout after \d+ms, keys: /.*a, /.*missing$`, err.Error())
}

func lists(t *testing.T, s store.Store) {
	requireKeys := func(want ...string) {
		t.Helper()
		keys, err := s.ListKeys(within(t))
		require.NoError(t, err)
		require.Equal(t, append([]string{}, want...), append([]string{}, keys...))
	}
	requireKeys()
	for _, k := range []string{"b", "a/b", "\xff", "/", "-a", "init/"} {
		set(t, s, k, "v")
	}
	requireKeys("-a", "/", "a/b", "b", "init/", "\xff")
	_, err := s.Delete(within(t), "b")
	require.NoError(t, err)
	_, err = s.Add(within(t), "c", 1)
	require.NoError(t, err)
	requireKeys("-a", "/", "a/b", "c", "init/", "\xff")
}

func multiOwnership(t *testing.T, s store.Store) {
	c, v := within(t), []byte("value")
	require.NoError(t, s.MultiSet(c, store.Pair{Key: "k", Value: v}))
	v[0] = 'X'
	values, err := s.MultiGet(c, "k", "k")
	require.NoError(t, err)
	values[0][0] = 'Y'
	_ = append(values[0], 'Z')
	require.Equal(t, "value", string(values[1]))
	requireValue(t, s, "k", "value")
}

// appendsCount has several clients append to one key: nothing is lost, doubled or cut.
func appendsCount(t *testing.T, clients []store.Store) {
	c := within(t)
	const each = 10
	inParallel(t, clients, func(i int, s store.Store) error {
		for n := range each {
			if err := s.Append(c, "log", fmt.Appendf(nil, "%d.%d ", i, n)); err != nil {
				return err
			}
		}
		return nil
	})
	v, err := clients[0].Get(c, "log")
	require.NoError(t, err)
	next := make([]int, len(clients))
	for _, part := range strings.Fields(string(v)) {
		var i, n int
		_, err := fmt.Sscanf(part, "%d.%d", &i, &n)
		require.NoError(t, err)
		require.Equal(t, next[i], n, "client %d's appends in their order: %s", i, v)
		next[i]++
	}
	for i := range clients {
		require.Equal(t, each, next[i], "client %d", i)
	}
}

// multiIsAtomic has two clients set two keys together, while others get them together.
func multiIsAtomic(t *testing.T, clients []store.Store) {
	c := within(t)
	const rounds = 25
	inParallel(t, clients, func(i int, s store.Store) error {
		for n := range rounds {
			if i < 2 {
				v := fmt.Appendf(nil, "%d.%d", i, n)
				if err := s.MultiSet(c, store.Pair{Key: "a", Value: v}, store.Pair{Key: "b", Value: v}); err != nil {
					return err
				}
				continue
			}
			v, err := s.MultiGet(c, "a", "b")
			if err != nil {
				return err
			}
			if !bytes.Equal(v[0], v[1]) {
				return fmt.Errorf("half of a MultiSet: %q", v)
			}
		}
		return nil
	})
}

func wokenByMulti(t *testing.T, clients []store.Store) {
	c := within(t)
	inParallel(t, clients, func(i int, s store.Store) error {
		switch i {
		case 0:
			return errors.Join(s.Append(c, "a", []byte("1")), s.MultiSet(c, store.Pair{Key: "b"}, store.Pair{Key: "c"}))
		case 1:
			_, err := s.MultiGet(c, "c", "a")
			return err
		}
		return s.Wait(c, "a", "b", "c")
	})
}

// multiCalls is for everything.
func multiCalls(c context.Context, s store.Store) []error {
	_, getErr := s.MultiGet(c, "k")
	_, listErr := s.ListKeys(c)
	return []error{s.Append(c, "k", nil), s.MultiSet(c, store.Pair{Key: "k", Value: []byte("1")}), getErr, listErr}
}
