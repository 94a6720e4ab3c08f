package rpc

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/transport"
)

func TestAWorkerUsesTheLanesThatItsConfigAllowsAndSaysWhyNotTheOthers(t *testing.T) {
	t.Setenv(LanesVariable, "bulk , quic")
	want := map[string][2]string{"": {"quic", "bulk"}, "quic": {"quic", "quic"}, "bulk": {"quic", "bulk"}}
	if runtime.GOOS == "linux" {
		want["local"] = [2]string{"local", "local"}
	}
	for lane, use := range want {
		t.Run(lane, func(t *testing.T) {
			ws := world(t, 2, nil, func(_ int, cfg *Config) {
				cfg.Functions = []Function{double}
				if lane != "" {
					cfg.Lanes = []string{lane}
				}
			})
			before := ws[0].Lanes()
			_, err := double.Call(ws[0].Context(t.Context()), "worker1", 1)
			require.NoError(t, err)
			require.Len(t, before, 1, "nobody has a link to himself unless he calls himself")
			l := ws[0].Lanes()[0]
			require.Equal(t, "worker1", l.Peer)
			require.Equal(t, use, [2]string{l.Calls, l.Tensors}, "lanes %q", lane)
			for i, s := range l.Lanes {
				require.Equal(t, s.Name != l.Calls && s.Name != l.Tensors && s.Name != transport.LaneQUIC, s.Why != "", "%+v", s)
				if s.Name == l.Calls {
					require.Greater(t, s.Sent, before[0].Lanes[i].Sent)
					require.Greater(t, s.Received, before[0].Lanes[i].Received)
				}
			}
		})
	}
}

func TestAPeerThatIsGoneHasNoLane(t *testing.T) {
	ws := sim(t, 2, nil)
	require.Equal(t, "sim", ws[0].Lanes()[0].Calls)
	require.NoError(t, ws[1].Close())
	eventually(t, "the news", func() bool { return ws[0].Lanes()[0].Calls == "" })
	require.Equal(t, []PeerLanes{{Peer: "worker1"}}, ws[0].Lanes())
}

func TestUnknownLanesAreRefusedTogetherWithAllElse(t *testing.T) {
	_, err := Join(t.Context(), Config{Name: "a b", Token: testToken, Lanes: []string{"quic", "carrier-pigeon"}})
	require.ErrorIs(t, err, ErrConfig)
	require.ErrorContains(t, err, "carrier-pigeon")
	require.ErrorContains(t, err, "worker name")
	for _, list := range []string{"avian", "quic,", "quic local"} {
		t.Setenv(LanesVariable, list)
		_, err = Join(t.Context(), Config{Token: testToken})
		require.ErrorIs(t, err, ErrConfig, list)
		require.ErrorContains(t, err, "$WEFT_LANES", list)
	}
	lanes, err := ParseLanes(" ")
	require.NoError(t, err)
	require.Nil(t, lanes)
}

func TestCopiesAreLentWhereTheConfigOrTheEnvironmentSaysSo(t *testing.T) {
	for text, want := range map[string]bool{"": false, "0": false, "1": true} {
		t.Setenv(lendCopiesVariable, text)
		p := prepared{}
		require.NoError(t, p.lendCopies(), text)
		require.Equal(t, want, p.LendCopies, text)
		p.LendCopies = true
		require.NoError(t, p.lendCopies(), text)
		require.True(t, p.LendCopies, text)
	}
	t.Setenv(lendCopiesVariable, "perhaps")
	require.ErrorContains(t, (&prepared{}).lendCopies(), `$WEFT_LEND_COPIES is "perhaps"; expected 1 or 0`)
}
