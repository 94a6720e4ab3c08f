package collective

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective/internal/narrow"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/rpctest"
)

// narrowed is what a sum in fewer bits is by its definition: all round what they have, and what
// they owe, and the member of a piece rounds the sum.
type narrowed struct {
	form       narrow.Form
	lost, owed [][]float32
}

func (n *narrowed) sum(x [][]float32, mean bool) []float32 {
	size, sums := len(x), make([]float32, len(x[0]))
	round := func(x, lost []float32) {
		b := make([]byte, n.form.Bytes(len(x)))
		n.form.Write(b, x, lost)
		n.form.Read(x, b)
	}
	for r := range x {
		mine := append([]float32(nil), x[r]...)
		round(mine, n.lost[r])
		for i, v := range mine {
			sums[i] += v
		}
	}
	for i := range sums {
		if mean {
			sums[i] /= float32(size)
		}
	}
	for r := range x {
		lo, hi := blocks(len(sums), size, r)
		round(sums[lo:hi], n.owed[r][lo:hi])
	}
	return sums
}

func TestASumInFewerBitsIsItsDefinitionOnAllMembers(t *testing.T) {
	for _, size := range []int{1, 2, 3, 5} {
		for _, form := range []narrow.Form{narrow.BFloat16, narrow.Int8, narrow.Int4} {
			t.Run(fmt.Sprintf("%v members, %v", size, form), func(t *testing.T) {
				gs := groups(t, rpctest.World(t, rpctest.Net(), size), "g")
				r := rand.New(rand.NewPCG(21, uint64(size)))
				for _, n := range []int{
					0, 1, narrow.Block, size*narrow.Block - 1, size*narrow.Block + 1, inlined,
					5 * inlined,
				} {
					members := make([]Narrow, size)
					oracle := narrowed{form, make([][]float32, size), make([][]float32, size)}
					for k := range size {
						members[k] = Narrow{Int8: form == narrow.Int8, Int4: form == narrow.Int4}
						oracle.lost[k], oracle.owed[k] = make([]float32, n), make([]float32, n)
					}
					for round := range 3 {
						op := []Op{Sum, Mean, Sum}[round]
						x := drawn[float32](r, size, n)
						want := oracle.sum(x, op == Mean)
						each(t, gs, func(k int) error {
							return members[k].AllReduce(t.Context(), gs[k], x[k], op)
						})
						for k := range x {
							same := bytes.Equal(device.Bytes(want), device.Bytes(x[k]))
							require.True(t, same, "rank %d, %d elements, round %d", k, n, round)
						}
					}
				}
			})
		}
	}
}

func TestSumsInFewerBitsAddUp(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 3), "g")
	const n, steps, each1 = 1000, 200, 1e-2
	for _, way := range []Narrow{{}, {Int8: true}, {Int4: true}} {
		members := []Narrow{way, way, way}
		came := make([]float64, n)
		for range steps {
			x := make([][]float32, 3)
			for k := range x {
				x[k] = make([]float32, n)
				for i := range x[k] {
					x[k][i] = each1 // half a step of the block is larger, and would take all of it
				}
				x[k][0] = 10
			}
			each(
				t, gs,
				func(k int) error { return members[k].AllReduce(t.Context(), gs[k], x[k], Sum) },
			)
			for i, v := range x[0] {
				came[i] += float64(v)
			}
		}
		for i := 1; i < n; i++ {
			late := 0.3 // of two steps of 10/127, or of 10/7 at each member and of 30/7 of the sum
			if way.Int4 {
				late = 4.5
			}
			require.InDelta(t, 3*each1*steps, came[i], late, "element %d", i)
		}
		members[0].Reset()
		require.Equal(t, way, members[0])
	}
}

func TestASumInFewerBitsThatFailsTakesNothing(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 2), "g")
	members := []Narrow{{}, {}}
	x := [][]float32{{1.001, 2}, {1, 2}}
	step := func(k int) error { return members[k].AllReduce(t.Context(), gs[k], x[k], Sum) }
	each(t, gs, step)
	require.Equal(t, x[0], x[1])
	before := [][]float32{
		slices.Clone(members[0].lost.now), slices.Clone(members[1].lost.now),
		slices.Clone(members[0].owed.now), slices.Clone(members[1].owed.now),
	}
	x = [][]float32{{1.001, 2}, {1, 2}}
	members[1].Int8 = true
	for k, err := range attempt(gs, step) {
		require.ErrorIs(t, err, ErrMismatch)
		require.ErrorContains(t, err, "travel as bfloat16")
		require.ErrorContains(t, err, "travel as int8")
		require.Equal(t, before[k], members[k].lost.now)
		require.Equal(t, before[2+k], members[k].owed.now)
	}
	require.Equal(t, [][]float32{{1.001, 2}, {1, 2}}, x)
	both := Narrow{Int8: true, Int4: true}
	wrong(t, gs, ErrArguments, "Int8 and Int4; expected one of them at most", func(g *Group) error { return both.AllReduce(t.Context(), g, x[0], Sum) },
		func(g *Group) error { return g.Barrier(t.Context()) })
	wrong(t, gs, ErrOp, "Max in fewer bits; expected Sum, Mean or Scaled", func(g *Group) error { return members[0].AllReduce(t.Context(), g, x[0], Max) },
		func(g *Group) error { return g.Barrier(t.Context()) })
}

func TestWhatIsNotFiniteStaysSoInFewerBits(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 2), "g")
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, int8s := range []bool{false, true} {
		members := []Narrow{{Int8: int8s}, {Int8: int8s}}
		x := [][]float32{{inf, nan, 1, 0}, {1, 1, 1, 0}}
		each(
			t, gs, func(k int) error { return members[k].AllReduce(t.Context(), gs[k], x[k], Sum) },
		)
		if !int8s {
			require.Equal(t, inf, x[0][0])
		} else {
			require.True(t, x[0][0] != x[0][0])
		}
		require.True(t, x[0][1] != x[0][1])
		require.Equal(t, []float32{2, 0}, x[0][2:])
		x = [][]float32{{1, 1, 1, 0}, {1, 1, 1, 0}}
		each(
			t, gs, func(k int) error { return members[k].AllReduce(t.Context(), gs[k], x[k], Sum) },
		)
		require.Equal(t, []float32{2, 2, 2, 0}, x[1], "it is not carried over")
	}
}
