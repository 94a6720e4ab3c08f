package program

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// large is a unit of about n instructions such as a recurrent net makes: products, slices, gates,
// sums into one weight's gradient, and values that are read again much later.
func large(t testing.TB, n int) *Unit {
	r := rand.New(rand.NewPCG(uint64(n), 5))
	u := &Unit{Name: "large"}
	typ := func(s ...int) kernels.Type { return kernels.Type{Dtype: device.Float32, Shape: s} }
	h, w, b, sum := u.Input(typ(4, 8)), u.Input(typ(8, 32)), u.Input(typ(32)), u.Input(typ(4, 8))
	all := []Value{h}
	for len(u.Insts) < n {
		gates := apply(t, u, kernels.Binary{Fn: kernels.Add}, apply(t, u, kernels.MatMul{}, h, w), b)
		var g [4]Value
		for k := range g {
			g[k] = apply(t, u, kernels.Slice{Axis: 1, Start: 8 * k, Stop: 8*k + 8}, gates)
			g[k] = apply(t, u, kernels.Unary{Fn: kernels.Sigmoid}, g[k])
		}
		h = apply(t, u, kernels.Binary{Fn: kernels.Add}, apply(t, u, kernels.Binary{Fn: kernels.Mul}, g[0], g[1]), apply(t, u, kernels.Binary{Fn: kernels.Mul}, g[2], g[3]))
		h = apply(t, u, kernels.Reshape{Shape: device.Shape{4, 8}}, apply(t, u, kernels.Transpose{Perm: []int{0, 1}}, h))
		old := apply(t, u, kernels.Unary{Fn: kernels.Scale, C: 0.5}, all[r.IntN(len(all))])
		sum = apply(t, u, kernels.Binary{Fn: kernels.Add}, sum, old)
		all = append(all, h)
	}
	u.Results = []Value{h, sum}
	return u
}

func TestALargeUnitIsOptimizedToFewerInstructionsAndStaysValid(t *testing.T) {
	u := large(t, 5000)
	before := len(u.Insts)
	Optimize(u)
	require.NoError(t, u.Check())
	require.Less(t, 4*len(u.Insts), before, "slices and gates are part of others")
}

func TestAUnitThatIsOptimizedAgainStaysAsItIs(t *testing.T) {
	for seed := range 200 {
		u := growUnit(rand.New(rand.NewPCG(uint64(seed), 78)))
		Optimize(u)
		once := u.String()
		Optimize(u)
		require.NoError(t, u.Check())
		require.Equal(t, once, u.String(), "seed %d", seed)
	}
}

// What 20,000 nodes cost, and how it grows: see docs/compile-time.svg.
func BenchmarkOptimize(b *testing.B) {
	for n := 1250; n <= 40000; n *= 2 {
		b.Run(fmt.Sprintf("instructions=%d", n), func(b *testing.B) {
			u := large(b, n)
			for b.Loop() {
				Optimize(u.clone())
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/instruction")
		})
	}
}

func TestTheOrderNeedsNoMoreMemoryInTheEnd(t *testing.T) {
	before, after, worse := 0, 0, 0
	for seed := range 300 {
		u := growUnit(rand.New(rand.NewPCG(uint64(seed), 79)))
		fuse(u)
		dead(u)
		was := lay(u, ownBuffer).arena
		order(u)
		now := lay(u, ownBuffer).arena
		before, after = before+was, after+now
		if now > was {
			worse++
		}
	}
	require.LessOrEqual(t, after, before, "%d of 300 need more", worse)
}
