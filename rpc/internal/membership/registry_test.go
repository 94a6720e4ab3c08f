package membership

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/rpc/internal/roster"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/store"
)

func TestWhoSucceedsAWorkerMarksWhatThatOneHasClaimedAndNothingElse(t *testing.T) {
	old := &roster.Member{Name: "ps", Rank: 3, Incarnation: 7, Addr: "host:1"}
	record, err := wire.Encode(old)
	require.NoError(t, err)
	other := nameClaim(&roster.Member{Name: "ps", Rank: 33, Incarnation: 8, Addr: "host:2"})
	for _, c := range []struct{ rank, name, wantRank, wantName string }{
		{"", "", "", ""},
		{string(record), nameClaim(old), LostMark + string(record), LostMark + nameClaim(old)},
		{"", nameClaim(old), "", LostMark + nameClaim(old)}, // it died between the two
		{string(record), other, LostMark + string(record), other},
		{LostMark + string(record), LostMark + nameClaim(old), LostMark + string(record), LostMark + nameClaim(old)},
		{Going, Going, "", ""}, // it died while it took them back
	} {
		st := store.NewMemory()
		g := &Registry{Store: st}
		set := func(key, value string) {
			if value != "" {
				require.NoError(t, st.Set(t.Context(), key, []byte(value)))
			}
		}
		set(RankKey(3), c.rank)
		set(nameKey("ps"), c.name)
		require.NoError(t, g.Succeed(t.Context(), &roster.Member{Name: "ps", Rank: 3, Incarnation: 9}))
		for key, want := range map[string]string{RankKey(3): c.wantRank, nameKey("ps"): c.wantName} {
			have, err := g.raw(t.Context(), key)
			require.NoError(t, err)
			require.Equal(t, want, have, key)
		}
	}
}

func TestTheStoreKeepsTheHighestNumberOfThoseThatHaveLeft(t *testing.T) {
	st := store.NewMemory()
	g := &Registry{Store: st}
	for _, c := range []struct{ leaves, want uint64 }{{0, 0}, {9, 9}, {2, 9}, {9, 9}, {10, 10}} {
		require.NoError(t, g.noteLeft(t.Context(), c.leaves))
		last, err := g.lastLeft(t.Context())
		require.NoError(t, err)
		require.Equal(t, c.want, last)
	}
	var all sync.WaitGroup
	for n := range uint64(50) {
		all.Go(func() { assert.NoError(t, g.noteLeft(t.Context(), 11+n)) })
	}
	all.Wait()
	last, err := g.lastLeft(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 60, last)
	require.NoError(t, st.Set(t.Context(), keyLeft, []byte("many")))
	_, err = g.lastLeft(t.Context())
	require.ErrorIs(t, err, wire.ErrProtocol)
}
