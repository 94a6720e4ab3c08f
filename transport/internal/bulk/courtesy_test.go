package bulk

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/transport/internal/lane"
)

func TestAStripeGivesTurnsAwayWhileFramesComeAndGoAndNotElse(t *testing.T) {
	now := time.Unix(1000, 0)
	frames := &lane.Traffic{}
	k := courtesy{frames: frames}
	require.False(t, k.due(now), "no frames yet")
	frames.Received.Add(1)
	require.True(t, k.due(now))
	require.False(t, k.due(now.Add(courtesyTurn-1)), "not so soon again")
	require.True(t, k.due(now.Add(courtesyTurn)))
	require.False(t, k.due(now.Add(courtesyRecent+1)), "all is quiet")
	frames.Sent.Add(1)
	require.True(t, k.due(now.Add(courtesyRecent+2)))
	require.False(t, (&courtesy{}).due(now), "no link")
	yieldProcessor()
}
