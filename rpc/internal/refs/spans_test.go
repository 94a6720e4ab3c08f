package refs

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSpansAreASetWithAsFewRunsAsThereCanBe(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		base := uint64(1)
		if seed%2 == 1 {
			base = ^uint64(0) - 39
		}
		var s spans
		oracle := map[uint64]bool{}
		for range 60 {
			n := base + uint64(r.IntN(40))
			require.Equal(t, oracle[n], s.has(n))
			require.True(t, s.add(n, 100))
			oracle[n] = true
			runs := 0
			for i := range uint64(40) {
				require.Equal(t, oracle[base+i], s.has(base+i), "%d in %v", base+i, s)
				if oracle[base+i] && !oracle[base+i-1] {
					runs++
				}
			}
			require.Len(t, s, runs, "%v", s)
		}
	}
}

func TestSpansTakeNoMoreRunsThanTheirLimit(t *testing.T) {
	var s spans
	require.True(t, s.add(1, 2))
	require.True(t, s.add(3, 2))
	require.False(t, s.add(5, 2))
	require.False(t, s.has(5))
	require.True(t, s.add(4, 2), "a run may grow")
	require.True(t, s.add(2, 2), "runs may become one")
	require.Equal(t, spans{{1, 4}}, s)
	require.True(t, s.add(6, 2))
}
