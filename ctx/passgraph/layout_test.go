package passgraph

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCrossingsAreCountedAsByHand(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for range 300 {
		above, below := make([]*box, 1+r.IntN(8)), make([]*box, 1+r.IntN(8))
		for i := range above {
			above[i] = &box{order: i}
		}
		for i := range below {
			below[i] = &box{row: 1, order: i}
		}
		var lines [][2]int
		for range r.IntN(20) {
			a, b := r.IntN(len(above)), r.IntN(len(below))
			above[a].down = append(above[a].down, below[b])
			lines = append(lines, [2]int{a, b})
		}
		want := 0
		for i, l := range lines {
			for _, m := range lines[i+1:] {
				if (l[0]-m[0])*(l[1]-m[1]) < 0 {
					want++
				}
			}
		}
		require.Equal(t, want, crossings(above, len(below)))
	}
}

func TestUntanglingNeverMakesMoreCrossingsAndUndoesThoseOfALadder(t *testing.T) {
	s := newScript(1)
	var left, right [6]value
	for i := range left {
		left[i] = s.call(0, "left", f32(i+1))
	}
	for i := range right {
		right[i] = s.call(0, "right", f32(i+1), left[len(left)-1-i])
	}
	d, err := draw(s.graph(t))
	require.NoError(t, err)
	require.Zero(t, d.crossings())
	some(t, func(g *Graph) {
		d := outline(g)
		d.layer()
		require.NoError(t, d.bendLines())
		before := d.crossings()
		d.untangle()
		require.LessOrEqual(t, d.crossings(), before)
		for _, n := range d.lanes {
			for _, row := range n.rows {
				for i, b := range row {
					require.Equal(t, i, b.order)
				}
			}
		}
	})
}

func TestSpreadingIsAsNearToTheWishesAsAnyPlacementThatKeepsOrderAndDistance(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for range 300 {
		row := make([]*box, 1+r.IntN(6))
		want, weight := map[*box]int{}, map[*box]int{}
		for i := range row {
			row[i] = &box{kind: Function, w: 2 * r.IntN(40)}
			want[row[i]], weight[row[i]] = r.IntN(400)-200, 1+r.IntN(9)
		}
		spread(row, func(b *box) (int, int) { return want[b], weight[b] })
		cost := func(xs []int) (sum int) {
			for i, b := range row {
				sum += weight[b] * (xs[i] - want[b]) * (xs[i] - want[b])
			}
			return sum
		}
		have, slack := make([]int, len(row)), 0
		for i, b := range row {
			have[i] = b.x
			slack += weight[b] * (2*abs(b.x-want[b]) + 1) // places are whole pixels
			if i > 0 {
				require.GreaterOrEqual(t, b.x-row[i-1].x, (b.w+row[i-1].w)/2+between)
			}
		}
		for range 200 { // others, some near and some anywhere
			other := slices.Clone(have)
			for i := range other {
				other[i] += r.IntN(41) - 20
			}
			for i := 1; i < len(other); i++ {
				other[i] = max(other[i], other[i-1]+(row[i].w+row[i-1].w+1)/2+between)
			}
			require.LessOrEqual(t, cost(have), cost(other)+slack)
		}
	}
}

func TestLinesThatLeaveTheirLanesNeverLieOnEachOther(t *testing.T) {
	some(t, func(g *Graph) {
		s, err := draw(g)
		require.NoError(t, err)
		type span struct{ row, track, left, right int }
		var spans []span
		for _, l := range s.lines {
			if !l.across() {
				continue
			}
			x := span{l.from().row, l.track, min(l.from().x, l.to().x), max(l.from().x, l.to().x)}
			for _, o := range spans {
				apart := x.row != o.row || x.track != o.track || x.right < o.left || o.right < x.left
				require.True(t, apart, "%v and %v", x, o)
			}
			spans = append(spans, x)
			require.Less(t, s.bands[x.row].bottom+rowGap/2+trackHeight*x.track, s.bands[x.row+1].top, "a track lies between the rows")
		}
	})
}
