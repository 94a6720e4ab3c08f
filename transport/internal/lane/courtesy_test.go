package lane

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWhoMovesTensorsGivesTurnsAwayWhileCallsComeAndGoAndNotElse(t *testing.T) {
	now := time.Unix(1000, 0)
	calls := &atomic.Uint64{}
	k := NewCourtesy(calls)
	require.False(t, k.due(now), "no calls yet")
	calls.Add(1)
	require.True(t, k.due(now))
	require.False(t, k.due(now.Add(courtesyTurn-1)), "not so soon again")
	require.True(t, k.due(now.Add(courtesyTurn)))
	require.False(t, k.due(now.Add(courtesyRecent+1)), "all is quiet")
	calls.Add(1)
	require.True(t, k.due(now.Add(courtesyRecent+2)))
	require.False(t, NewCourtesy(nil).due(now), "no link")
	require.EqualValues(t, 1, k.Quiet(now.Add(courtesyRecent+3)), "since a call was seen")
	require.Greater(t, NewCourtesy(nil).Quiet(now), time.Hour, "no link")
	yieldProcessor()
}
