package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/store"
)

func limits(t *testing.T, s store.Store) {
	c := within(t)
	long := strings.Repeat("k", 8<<10)
	for name, key := range map[string]string{"empty": "", "too long": long} {
		_, getErr := s.Get(c, key)
		_, addErr := s.Add(c, key, 1)
		_, casErr := s.CompareSet(c, key, nil, nil)
		_, delErr := s.Delete(c, key)
		_, checkErr := s.Check(c, "k", key)
		for _, err := range []error{s.Set(c, key, nil), getErr, addErr, casErr, delErr, checkErr, s.Wait(c, key)} {
			require.ErrorIs(t, err, store.ErrBadKey, name)
		}
	}
	require.ErrorIs(t, s.Set(c, long, nil), store.ErrTooLarge)
	huge := make([]byte, 8<<20+1)
	require.ErrorIs(t, s.Set(c, "k", huge), store.ErrTooLarge)
	_, err := s.CompareSet(c, "k", huge, nil)
	require.ErrorIs(t, err, store.ErrTooLarge)
	_, err = s.CompareSet(c, "k", nil, huge)
	require.ErrorIs(t, err, store.ErrTooLarge)
	require.ErrorIs(t, s.Wait(c, slices.Repeat([]string{"k"}, 128<<10+1)...), store.ErrTooLarge)
	requireCheck(t, s, false, "k")

	require.NoError(t, s.Set(c, "k", huge[1:]))
	v, err := s.Get(c, "k")
	require.NoError(t, err)
	require.True(t, bytes.Equal(huge[1:], v))
}

func timeouts(t *testing.T, s store.Store) {
	set(t, s, "there", "v")
	_, getErr := s.Get(briefly(t), "no such key")
	waitErr := s.Wait(briefly(t), "there", "missing")
	for _, err := range []error{getErr, waitErr} {
		require.ErrorIs(t, err, store.ErrTimeout)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, context.Canceled)
		var typed *store.Error
		require.ErrorAs(t, err, &typed)
	}
	require.Regexp(t, `wait timeout after \d+ms, keys: /.*no such key$`, getErr.Error())
	require.Regexp(t, `wait timeout after \d+ms, keys: /.*there, /.*missing$`, waitErr.Error())
	// A client that timed out is as good as new, also when the key comes late.
	set(t, s, "missing", "late")
	require.ErrorIs(t, s.Wait(briefly(t), "never"), store.ErrTimeout)
	requireValue(t, s, "there", "v")
	requireValue(t, s, "missing", "late")
}

func cancelled(t *testing.T, s store.Store) {
	why := errors.New("changed my mind")
	c, cancel := context.WithCancelCause(within(t))
	done := make(chan error, 2)
	go func() { done <- s.Wait(c, "never") }()
	go func() {
		_, err := s.Get(c, "never")
		done <- err
	}()
	set(t, s, "other", "v") // waiting holds up nothing
	cancel(why)
	for range 2 {
		err := <-done
		require.ErrorIs(t, err, why)
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, store.ErrTimeout)
	}
	requireValue(t, s, "other", "v")
}

// everything calls every operation that the store supports and returns the errors.
func everything(c context.Context, s store.Store) []error {
	_, getErr := s.Get(c, "k")
	_, addErr := s.Add(c, "k", 1)
	_, casErr := s.CompareSet(c, "k", nil, []byte("1"))
	_, delErr := s.Delete(c, "k")
	_, checkErr := s.Check(c, "k")
	_, numErr := s.NumKeys(c)
	errs := []error{s.Set(c, "k", []byte("1")), getErr, addErr, casErr, delErr, checkErr, numErr, s.Wait(c, "k"), s.Barrier(c, "b", 1)}
	errs = slices.Concat(errs, multiCalls(c, s), queueCalls(c, s), watchCalls(c, s))
	return slices.DeleteFunc(errs, func(err error) bool { return errors.Is(err, store.ErrUnsupported) })
}

func refused(t *testing.T, s store.Store) {
	c, cancel := context.WithCancel(within(t))
	cancel()
	for _, err := range everything(c, s) {
		require.ErrorIs(t, err, context.Canceled)
	}
	c, cancel = context.WithDeadline(within(t), time.Unix(1, 0))
	defer cancel()
	for _, err := range everything(c, s) {
		require.ErrorIs(t, err, store.ErrTimeout)
	}
	requireCheck(t, s, false, "k")
}

func closing(t *testing.T, s store.Store) {
	done := make(chan error, 2)
	go func() { done <- s.Wait(within(t), "never") }()
	go func() {
		_, err := s.Get(within(t), "never")
		done <- err
	}()
	set(t, s, "k", "1")
	require.NoError(t, s.Close())
	for range 2 {
		require.ErrorIs(t, <-done, store.ErrClosed)
	}
	for _, err := range everything(within(t), s) {
		require.ErrorIs(t, err, store.ErrClosed)
	}
	require.NoError(t, s.Close())
}

func ownership(t *testing.T, s store.Store) {
	c, v, old := within(t), []byte("value"), []byte("value")
	require.NoError(t, s.Set(c, "k", v))
	v[0] = 'X'
	requireValue(t, s, "k", "value")
	got, err := s.Get(c, "k")
	require.NoError(t, err)
	got[0] = 'X'
	_ = append(got, 'Y')
	requireValue(t, s, "k", "value")
	v = []byte("other")
	got, err = s.CompareSet(c, "k", old, v)
	require.NoError(t, err)
	got[0], v[1], old[0] = 'X', 'Y', 'Z'
	requireValue(t, s, "k", "other")
	got, err = s.CompareSet(c, "k", old, v)
	require.NoError(t, err)
	got[0] = 'X'
	requireValue(t, s, "k", "other")
}

// againstMap makes random calls and compares each answer with that of a map.
func againstMap(t *testing.T, s store.Store) {
	c, before, model := within(t), count(t, s), map[string]string{}
	r := rand.New(rand.NewPCG(1, 2))
	pick := func() string { return fmt.Sprint("k", r.IntN(4)) }
	text := func() string { return []string{"", "1", "22", "x"}[r.IntN(4)] }
	for range 400 {
		k := pick()
		v, there := model[k]
		switch r.IntN(6) {
		case 0:
			model[k] = text()
			set(t, s, k, model[k])
		case 1:
			was, err := s.Delete(c, k)
			require.NoError(t, err)
			require.Equal(t, there, was)
			delete(model, k)
		case 2:
			want, desired := text(), text()
			switch {
			case v == want:
				model[k] = desired
				requireCAS(t, s, k, want, desired, desired)
			case there:
				requireCAS(t, s, k, want, desired, v)
			default:
				requireCAS(t, s, k, want, desired, want)
			}
		case 3:
			if there {
				requireValue(t, s, k, v)
			}
		case 4:
			other := pick()
			_, both := model[other]
			requireCheck(t, s, there && both, k, other)
		case 5:
			require.Equal(t, before+int64(len(model)), count(t, s))
		}
	}
}
