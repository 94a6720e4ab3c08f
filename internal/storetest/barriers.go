package storetest

import (
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/store"
)

func barrierAlone(t *testing.T, s store.Store) {
	c := within(t)
	for n := 1; n <= 3; n++ { // later calls return at once
		require.NoError(t, s.Barrier(c, "alone", 1))
		requireValue(t, s, "alone", strconv.Itoa(n))
	}
	err := s.Barrier(briefly(t), "two", 2)
	require.ErrorIs(t, err, store.ErrTimeout)
	require.Regexp(t, `barrier timeout after \d+ms, key: /.*two$`, err.Error())
	require.NoError(t, s.Barrier(c, "two", 2), "it had arrived although it did not stay")
	requireValue(t, s, "two", "2")
	set(t, s, "word", "x")
	require.ErrorIs(t, s.Barrier(c, "word", 1), store.ErrNotANumber)
	require.ErrorIs(t, s.Barrier(c, "", 1), store.ErrBadKey)
	requireValue(t, s, "word", "x")
}

// barrierHolds lets nobody through before all have come, three times.
func barrierHolds(t *testing.T, clients []store.Store) {
	c := within(t)
	var come atomic.Int64
	inParallel(t, clients, func(_ int, s store.Store) (err error) {
		for round := 1; round <= 3; round++ {
			come.Add(1)
			err = errors.Join(err, s.Barrier(c, fmt.Sprint("round ", round), len(clients)))
			if n := come.Load(); n < int64(round*len(clients)) {
				err = errors.Join(err, fmt.Errorf("passed barrier %d when %d had come", round, n))
			}
		}
		return err
	})
	requireValue(t, clients[0], "round 3", strconv.Itoa(len(clients)))
}
