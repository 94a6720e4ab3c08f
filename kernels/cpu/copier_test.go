package cpu

import (
	"math/rand/v2"
	"testing"

	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/internal/stride"
	"github.com/weft-project/weft/kernels/internal/stride/stridetest"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/device"
)

// randomView orders the axes at random in memory, with gaps; in some cases axes repeat, where
// elements may.
func randomView(r *rand.Rand, s device.Shape, repeat bool) (v *kernels.View, n int) {
	v = &kernels.View{Shape: s, Offset: r.IntN(5), Strides: make([]int, len(s))}
	at := 1 + r.IntN(2)*r.IntN(3)
	n = v.Offset + 1
	for _, k := range r.Perm(len(s)) {
		if repeat && r.IntN(5) == 0 {
			continue
		}
		v.Strides[k] = at
		n += at * max(s[k]-1, 0)
		at *= max(s[k], 1)
		at += r.IntN(2) * r.IntN(5)
	}
	return v, n
}

func flat(v *kernels.View, idx []int) int {
	at := v.Offset
	for k, n := range idx {
		at += n * v.Strides[k]
	}
	return at
}

func TestACopierCopiesBetweenAnyTwoLayoutsInAnyOrderOfItsUnits(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for range 1500 {
		s := make(device.Shape, r.IntN(5))
		for k := range s {
			s[k] = []int{1, 2, 3, 5, 7, 19, 40}[r.IntN(7-len(s))]
			if r.IntN(60) == 0 {
				s[k] = 0
			}
		}
		if r.IntN(100) == 0 {
			s = device.Shape{2, 3*pieceLen + 1}
		}
		to, n := randomView(r, s, false)
		from, m := randomView(r, s, true)
		o, x := make([]int32, n), make([]int32, m)
		for k := range x {
			x[k] = int32(k + 1)
		}
		want := make([]int32, n)
		own := stride.RowMajor(s)
		stridetest.Each(s, [][]int{own}, func(off []int) {
			idx, rest := make([]int, len(s)), off[0]
			for k := range s {
				idx[k], rest = rest/own[k], rest%own[k]
			}
			want[flat(to, idx)] = x[flat(from, idx)]
		})
		c := newCopier[int32](to, from)
		var cuts [][2]int
		for lo := 0; lo < c.units; {
			hi := min(lo+1+r.IntN(c.units), c.units)
			cuts = append(cuts, [2]int{lo, hi})
			lo = hi
		}
		for _, k := range r.Perm(len(cuts)) {
			c.copyUnits(o, x, cuts[k][0], cuts[k][1])
		}
		require.Equal(t, want, o, "%v to %v, from %v", s, to, from)
	}
}

func FuzzACopierStaysWithinItsLayouts(f *testing.F) {
	f.Add(uint64(1), uint8(3))
	f.Fuzz(func(t *testing.T, seed uint64, rank uint8) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := make(device.Shape, rank%6)
		for k := range s {
			s[k] = r.IntN(9)
		}
		to, n := randomView(r, s, false)
		from, m := randomView(r, s, true)
		c := newCopier[int64](to, from)
		c.copyUnits(make([]int64, n), make([]int64, m), 0, c.units)
	})
}
