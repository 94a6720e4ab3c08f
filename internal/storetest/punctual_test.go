package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/store"
)

// deaf is a store that does not hear that a context is over.
type deaf struct{ store.Store }

func (d deaf) Pop(c context.Context, key string) ([]byte, error) {
	return d.Store.Pop(context.WithoutCancel(c), key)
}

func (d deaf) Wait(c context.Context, keys ...string) error {
	return d.Store.Wait(context.WithoutCancel(c), keys...)
}

func TestACallThatGoesOnWhenItsContextIsOverIsToldAndEnded(t *testing.T) {
	for want, call := range map[string]func(c context.Context, s store.Store) error{
		`Pop of ["q"]`:      func(c context.Context, s store.Store) error { _, err := s.Pop(c, "q"); return err },
		`Wait of ["a" "b"]`: func(c context.Context, s store.Store) error { return s.Wait(c, "a", "b") },
	} {
		synctest.Test(t, func(t *testing.T) {
			var told []string
			fail := func(format string, args ...any) { told = append(told, fmt.Sprintf(format, args...)) }
			start := time.Now()
			c, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(errors.New("enough")) })
			err := call(c, &punctual{deaf{store.NewMemory()}, overrun, fail})
			require.ErrorIs(t, err, store.ErrClosed)
			require.Equal(t, time.Second+overrun, time.Since(start))
			require.Equal(t, []string{want + " goes on 30s after its context was over (enough); the store is closed, as that ends its calls"}, told)
		})
	}
}

func TestACallThatEndsWithItsContextIsNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &punctual{store.NewMemory(), 0, t.Errorf}
		require.NoError(t, s.Set(t.Context(), "k", nil))
		for range 3 {
			c, cancel := context.WithTimeout(t.Context(), time.Hour)
			require.NoError(t, s.Wait(c, "k"))
			cancel()
			synctest.Wait()
		}
		s.overrun = time.Second
		c, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		require.ErrorIs(t, s.Wait(c, "never"), store.ErrTimeout)
		time.Sleep(time.Hour)
		require.NoError(t, s.Set(t.Context(), "k", nil), "it was not closed")
	})
}
