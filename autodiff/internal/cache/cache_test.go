package cache

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestACacheIsABoundedMap drives a cache beside a map of all that was ever put.
func TestACacheIsABoundedMap(t *testing.T) {
	const most = 20
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		var s Bounded[int]
		all := map[uint64]int{}
		for i := range 300 {
			h := uint64(r.IntN(40))
			var got int
			var ok bool
			switch r.IntN(3) {
			case 0:
				_, have := s.by[h]
				full := len(s.ring) == most
				require.Equal(t, full && !have, s.Put(h, i, most))
				all[h] = i
				got, ok = s.Find(h)
				require.True(t, ok, "what was put last is there")
			case 1:
				got, ok = s.Find(h)
			default:
				got, ok = s.Recent(h)
				if ok {
					_, have := s.Find(h)
					require.True(t, have, "what went is not recent")
				}
			}
			if ok {
				require.Equal(t, all[h], got)
			}
			require.Equal(t, len(s.by), len(s.ring))
			require.LessOrEqual(t, len(s.ring), most)
		}
	}
}

func TestWhatIsUsedAgainAndAgainStaysInACache(t *testing.T) {
	var s Bounded[string]
	s.Put(1, "hot", 8)
	for h := uint64(2); h < 1000; h++ {
		_, ok := s.Recent(1)
		if !ok {
			_, ok = s.Find(1)
		}
		require.True(t, ok, h)
		s.Put(h, "cold", 8)
	}
}
