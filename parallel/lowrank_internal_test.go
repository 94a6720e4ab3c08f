package parallel

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// nothing is the sum of one rank.
func nothing([]float32) error { return nil }

func TestWhatALowRankLeavesOutComesWithTheNextStep(t *testing.T) {
	for seed := range uint64(40) {
		src := rand.New(rand.NewPCG(seed, 1))
		n, m, rank, ranks := 1+src.IntN(20), 1+src.IntN(20), 1+src.IntN(4), 1+src.IntN(3)
		all := make([]*factors, ranks)
		for r := range all {
			all[r] = newFactors(n, m, rank, 5)
		}
		want, got := make([]float64, n*m), make([]float64, n*m)
		for range 6 {
			xs := make([][]float32, ranks)
			for r := range xs {
				xs[r] = make([]float32, n*m)
				for i := range xs[r] {
					xs[r][i] = float32(src.NormFloat64())
					want[i] += float64(xs[r][i])
				}
			}
			outs := together(t, all, xs)
			for r := range outs {
				require.Equal(t, outs[0], outs[r], "all ranks have the same bits")
			}
			for i, v := range outs[0] {
				got[i] += float64(v)
			}
		}
		for i := range want { // what came, and what is still to come
			for _, f := range all {
				got[i] += float64(f.lost[i])
			}
			require.InDelta(t, want[i], got[i], 1e-4, "seed %d: %d·%d of rank %d", seed, n, m, rank)
		}
	}
}

// together is one step of all ranks. It drives their exchanges sum by sum.
func together(t *testing.T, all []*factors, xs [][]float32) [][]float32 {
	t.Helper()
	arrived, sums, ended := make(chan []float32), make(chan []float32), make(chan error)
	for r, f := range all {
		go func() {
			ended <- f.exchange(xs[r], func(v []float32) error { arrived <- v; copy(v, <-sums); return nil }, func(error) {})
		}()
	}
	for range 2 {
		var sum []float32
		for range all {
			v := <-arrived
			if sum == nil {
				sum = make([]float32, len(v))
			}
			for i := range v {
				sum[i] += v[i]
			}
		}
		for range all {
			sums <- sum
		}
	}
	for range all {
		require.NoError(t, <-ended)
	}
	for _, f := range all {
		f.settle(true)
	}
	return xs
}

func TestAGradientOfALowRankComesWhole(t *testing.T) {
	const n, m = 30, 20
	for have := range 4 { // the rank of the gradient
		f := newFactors(n, m, 3, 0)
		x := make([]float32, n*m)
		for range have {
			a, b := make([]float32, n), make([]float32, m)
			f.draw(a)
			f.draw(b)
			for i := range x {
				x[i] += a[i/m] * b[i%m]
			}
		}
		for step := range 3 {
			out := append([]float32{}, x...)
			if step > 0 {
				f.settle(true)
			}
			require.NoError(t, f.exchange(out, nothing, nil))
			require.InDeltaSlice(t, x, out, 1e-4, "rank %d at step %d", have, step)
		}
		f.settle(true)
		for k := range 3 {
			require.False(t, zero(f.q[k*m:][:m]), "a direction that had nothing looks elsewhere")
		}
	}
}

func TestAStepThatFailsLeavesNothingBehind(t *testing.T) {
	f := newFactors(6, 5, 2, 0)
	x := make([]float32, 30)
	f.draw(x)
	require.NoError(t, f.exchange(append([]float32{}, x...), nothing, nil))
	f.settle(true)
	q, lost := append([]float32{}, f.q...), append([]float32{}, f.lost...)
	bad, skipped := errors.New("no"), 0
	require.ErrorIs(t, f.exchange(append([]float32{}, x...), func([]float32) error { return bad }, func(error) { skipped++ }), bad)
	require.Equal(t, 1, skipped, "the second sum is not made either")
	f.settle(true)
	require.NoError(t, f.exchange(append([]float32{}, x...), nothing, nil))
	f.settle(false) // another parameter's sum has failed
	require.Equal(t, q, f.q)
	require.Equal(t, lost, f.lost)
}

func TestColumnsAreMadeOrthonormal(t *testing.T) {
	for seed := range uint64(100) {
		src := rand.New(rand.NewPCG(seed, 3))
		n, rank := 1+src.IntN(30), 1+src.IntN(5)
		p := make([]float32, n*rank)
		for i := range p {
			p[i] = float32(src.NormFloat64() * math.Pow(10, float64(src.IntN(9)-4)))
		}
		if rank > 1 && src.IntN(2) == 0 { // one that depends on another
			for i := range n {
				p[n+i] = 3 * p[i]
			}
		}
		orthonormalise(p, n, rank)
		for a := range rank {
			for b := range rank {
				sum := 0.0
				for i := range n {
					sum += float64(p[a*n+i]) * float64(p[b*n+i])
				}
				switch {
				case a != b:
					require.InDelta(t, 0, sum, 1e-5, "seed %d", seed)
				case sum > 0.5 || a == 0 && n > 0:
					require.InDelta(t, 1, sum, 1e-5, "seed %d", seed)
				default:
					require.Zero(t, sum)
				}
			}
		}
	}
}

// What a step has left out counts from its end on, so that it is of that step's weights.
func TestWhatIsForgottenAtTheEndOfAStepDoesNotComeWithTheNext(t *testing.T) {
	f := newFactors(6, 5, 1, 5)
	x := make([]float32, 30)
	for i := range x {
		x[i] = float32(i*i%7) - 3
	}
	require.NoError(t, f.exchange(x, nothing, func(error) {}))
	r := &Replicas{lows: map[int]*factors{0: f}}
	r.forget()
	r.settle(true)
	require.Equal(t, make([]float32, 30), f.lost)
}
