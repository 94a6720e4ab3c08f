package parallel_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/parallel"
)

func TestAnyNumberOfRanksTakesTheSameRowsAtAStep(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		rows := parallel.Rows{Seed: r.Uint64(), N: 1 + r.IntN(70), Batch: r.IntN(40)}
		step := r.Uint64N(100)
		if r.IntN(4) == 0 {
			step = r.Uint64()
		}
		whole := rows.Of(step, 0, 1)
		require.Len(t, whole, rows.Batch)
		for size := 1; size <= 9; size++ {
			all := []int{}
			for rank := range size {
				part := rows.Of(step, rank, size)
				require.InDelta(t, float64(rows.Batch)/float64(size), float64(len(part)), 1)
				all = append(all, part...)
			}
			require.Equal(t, whole, all, "%+v at step %d of %d ranks", rows, step, size)
		}
	}
}

func TestEachPassTakesEveryRowOnceInAnOrderOfItsOwn(t *testing.T) {
	for n := 1; n <= 70; n++ {
		rows := parallel.Rows{Seed: 7, N: n, Batch: 1 + n%7}
		var all []int
		for step := uint64(0); len(all) < 3*n; step++ {
			all = append(all, rows.Of(step, 0, 1)...)
		}
		for pass := range 3 {
			seen := slices.Clone(all[pass*n : (pass+1)*n])
			slices.Sort(seen)
			for i, row := range seen {
				require.Equal(t, i, row, "pass %d over %d rows", pass, n)
			}
		}
		if n >= 20 {
			require.NotEqual(t, all[:n], all[n:2*n])
			rows.Seed++
			require.NotEqual(t, all[:rows.Batch], rows.Of(0, 0, 1))
		}
	}
}

func TestRowsAreShuffledEvenly(t *testing.T) {
	const n, passes = 10, 4000
	var at [n][n]int
	for pass := range uint64(passes) {
		for place, row := range (parallel.Rows{Seed: 3, N: n, Batch: n}).Of(pass, 0, 1) {
			at[place][row]++
		}
	}
	for place := range n {
		for row := range n {
			require.InDelta(t, passes/n, at[place][row], 120, "row %d at place %d", row, place) // six deviations
		}
	}
}

func TestThereAreNoRowsOfNoData(t *testing.T) {
	require.Empty(t, parallel.Rows{Batch: 3}.Of(0, 0, 1))
	require.Empty(t, parallel.Rows{N: 3}.Of(0, 0, 1))
	require.Empty(t, parallel.Rows{N: 3, Batch: -1}.Of(9, 1, 2))
}
