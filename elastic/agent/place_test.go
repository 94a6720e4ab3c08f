package agent

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic/rdzv"
)

func TestAnEpochIsOfTheRoundOfThePlace(t *testing.T) {
	complete := func(round, epoch int) rdzv.Summary {
		return rdzv.Summary{Round: round, Epoch: epoch, Phase: rdzv.Complete}
	}
	var e epochs
	require.False(t, e.heard(complete(0, 1)), "there is no place")
	e.placed(rdzv.Placement{Round: 0, Epoch: 1})
	require.Equal(t, 1, e.now)
	require.False(t, e.heard(complete(0, 1)), "it is known")
	require.True(t, e.heard(complete(0, 2)), "a worker was replaced")
	require.False(t, e.heard(complete(1, 3)), "the place in the next round has not come")
	require.False(t, e.heard(complete(1, 4)))
	require.Equal(t, 2, e.now)
	e.placed(rdzv.Placement{Round: 1, Epoch: 3})
	require.Equal(t, 4, e.now, "what was heard before counts now")
	e.placed(rdzv.Placement{Round: 2, Epoch: 5}) // before the bulletin of its round
	require.False(t, e.heard(complete(1, 4)), "of the round before")
	require.Equal(t, 5, e.now)
	require.False(t, e.heard(rdzv.Summary{Round: 2, Epoch: 6, Phase: rdzv.Closed}), "the end of the job replaces nobody")
	require.False(t, e.heard(rdzv.Summary{Round: 2, Epoch: 6, Phase: rdzv.Gathering}))
	require.Equal(t, 5, e.now)
}
