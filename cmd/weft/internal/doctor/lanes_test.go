package doctor

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/transport"
)

func TestEveryLaneIsMeasuredAndNothingIsLeft(t *testing.T) {
	leak.Check(t)
	want := map[string]string{
		transport.LaneLocal: `^a small call there and back takes \d+ µs, a tensor of 16 MiB, lent in shared memory, \d+ µs$`,
		transport.LaneBulk:  `^a tensor of 16 MiB moves at \d+\.\d\d GB/s$`,
		transport.LaneQUIC:  `^a small call there and back takes \d+ µs, a tensor of 16 MiB moves at \d+\.\d\d GB/s$`,
	}
	require.Len(t, want, len(transport.LaneNames())-1, "all but lane cuda")
	for lane, text := range want {
		f := examineLane(t.Context(), lane, false)
		require.Equal(t, "lane "+lane, f.what)
		if f.verdict == poor { // not to be had on this system
			require.Contains(t, f.text, "instead, which is slower")
			continue
		}
		require.Equal(t, good, f.verdict, f.text)
		require.Regexp(t, text, f.text)
	}
}

func TestALaneThatCannotBeHadSaysWhyAndOnlyQUICIsNeeded(t *testing.T) {
	leak.Check(t)
	c, cancel := context.WithCancel(t.Context())
	cancel()
	for _, f := range examineLanes(c, true) {
		require.Contains(t, f.text, "context canceled")
		require.Equal(t, f.what == "lane quic", f.verdict == bad, f.text)
	}
	l, err := newLoop(t.Context(), transport.LaneQUIC)
	require.NoError(t, err)
	defer l.stop()
	require.Equal(t, "it was not asked for", l.state(transport.LaneLocal).Why)
	require.NotEmpty(t, l.state("pigeons").Why)
}
