package shard

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/parallel/internal/host"
)

// Ranks walk over the same layers, and each waits for some; an operation ends when all have begun
// it. Whatever they wait for, all get to their ends.
func TestRanksThatWaitForDifferentLayersDoNotWaitForOneAnother(t *testing.T) {
	for n := range 2000 {
		src := rand.New(rand.NewPCG(uint64(n), 1))
		ranks, layers := 1+src.IntN(4), 1+src.IntN(6)
		there := make([]bool, layers)
		for k := range there {
			there[k] = src.IntN(4) == 0
		}
		begun := make([]int, layers) // by how many ranks
		type rank struct {
			walk  walk
			wants []int // that it will wait for
			waits int   // −1: for none
		}
		all := make([]*rank, ranks)
		for r := range all {
			all[r] = &rank{walk: back("test", there), waits: -1}
			for k := layers - 1; k >= 0; k-- {
				if src.IntN(2) == 0 {
					all[r].wants = append(all[r].wants, k)
				}
			}
			src.Shuffle(len(all[r].wants)*src.IntN(2), func(i, j int) { // as parallel branches do
				all[r].wants[i], all[r].wants[j] = all[r].wants[j], all[r].wants[i]
			})
		}
		for {
			var able []*rank
			for _, r := range all {
				if r.waits >= 0 && !there[r.waits] && begun[r.waits] < ranks || r.waits < 0 && len(r.wants) == 0 && len(r.walk.todo) == 0 {
					continue
				}
				able = append(able, r)
			}
			if len(able) == 0 {
				break
			}
			r := able[src.IntN(len(able))]
			r.waits = -1
			if len(r.wants) > 0 {
				k := r.wants[0]
				r.wants = r.wants[1:]
				for _, j := range r.walk.upTo(k) {
					begun[j]++
				}
				r.waits = k
				if j, ok := r.walk.nextLayer(); ok && src.IntN(2) == 0 {
					begun[j]++
				} else if ok {
					r.walk.todo = slices.Insert(r.walk.todo, 0, j)
				}
			} else if j, ok := r.walk.nextLayer(); ok {
				begun[j]++
				r.waits = j
			}
		}
		for _, r := range all {
			require.Empty(t, r.wants, "case %d", n)
			require.Empty(t, r.walk.todo)
		}
	}
}

func TestWalksGoForthAndBackOverWhatIsNotThere(t *testing.T) {
	there := []bool{false, true, false, false}
	w := forth("forward", there)
	require.Equal(t, []int{0, 2}, w.upTo(2))
	require.Empty(t, w.upTo(2))
	require.Empty(t, w.upTo(1))
	k, ok := w.nextLayer()
	require.True(t, ok)
	require.Equal(t, 3, k)
	_, ok = w.nextLayer()
	require.False(t, ok)
	w = back("backward", there)
	require.Equal(t, []int{3, 2, 0}, w.upTo(0))
}

// All ranks together have each element of each parameter once, at the place where it travels.
func TestCutsHaveEachElementOnce(t *testing.T) {
	for n := range 500 {
		src := rand.New(rand.NewPCG(uint64(n), 2))
		ranks := 1 + src.IntN(6)
		var params []param
		for range 1 + src.IntN(5) {
			params = append(params, param{[]device.Dtype{device.Float32, device.Float64}[src.IntN(2)], []int{0, 1, 15, 16, 17, src.IntN(300)}[src.IntN(6)]})
		}
		seen := make([][]bool, len(params))
		for i, p := range params {
			seen[i] = make([]bool, p.elems)
		}
		for r := range ranks {
			for _, f := range cut(10, params, ranks, r) {
				lo, hi := collective.Share(f.n, ranks, r)
				require.Equal(t, []int{lo, hi}, []int{f.lo, f.hi})
				for j, i := range f.params {
					require.Equal(t, f.dtype, params[i-10].dtype)
					off, bytes := f.spot(j)
					require.Zero(t, off%host.Alignment)
					from, to := f.mine(j)
					at, size := f.inShare(j)
					require.Equal(t, (to-from)*f.dtype.Size(), size)
					if from < to {
						require.Equal(t, off+from*f.dtype.Size(), f.lo*f.dtype.Size()+at,
							"it lies in the share where it lies in all of it")
						_, share := f.bytes()
						require.LessOrEqual(t, at+size, share)
						require.LessOrEqual(t, to*f.dtype.Size(), bytes)
					}
					for e := from; e < to; e++ {
						if seen[i-10][e] { // require takes long, element by element
							require.Fail(t, "twice", "element %d of parameter %d", e, i)
						}
						seen[i-10][e] = true
					}
				}
			}
		}
		for _, of := range seen {
			require.False(t, slices.Contains(of, false))
		}
	}
}
