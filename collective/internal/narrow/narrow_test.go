package narrow

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/soak"
)

// lengths are on both sides of a block, and of two.
var lengths = []int{0, 1, 2, Block - 1, Block, Block + 1, 2*Block - 1, 2 * Block, 2*Block + 1, 5*Block + 7}

func draw(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		switch r.IntN(12) {
		case 0:
			x[i] = math.Float32frombits(r.Uint32()) // anything
		case 1:
			x[i] = []float32{0, math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32, float32(math.Inf(1)), float32(math.NaN())}[r.IntN(6)]
		default:
			x[i] = float32(r.NormFloat64() * math.Pow(2, float64(r.IntN(40)-20)))
		}
	}
	return x
}

// nearest is the bfloat16 that is nearest to v, of two the even one, found by trying all of a
// neighbourhood.
func nearest(v float32) float32 {
	if v != v || math.IsInf(float64(v), 0) {
		return v
	}
	down := math.Float32bits(v) &^ 0xffff
	best, least := float32(0), new(big.Float)
	for k, bits := range []uint32{down, down + 1<<16} {
		w := float64(math.Float32frombits(bits))
		if math.IsInf(w, 0) { // it counts as the next power of two
			w = math.Copysign(math.Ldexp(1, 128), float64(v))
		}
		d := new(big.Float).Abs(new(big.Float).Sub(big.NewFloat(w), big.NewFloat(float64(v))))
		if c := d.Cmp(least); k == 0 || c < 0 || c == 0 && bits>>16&1 == 0 {
			best, least = math.Float32frombits(bits), d
		}
	}
	return best
}

func TestABFloat16IsTheNearestAndOfTwoTheEvenOne(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 5))
	for range soak.Cases(200) {
		x := draw(r, lengths[r.IntN(len(lengths))])
		to, y := make([]byte, BFloat16.Bytes(len(x))), make([]float32, len(x))
		BFloat16.Write(to, x, nil)
		BFloat16.Read(y, to)
		for i, v := range x {
			if v != v {
				require.True(t, y[i] != y[i], "NaN stays NaN")
				continue
			}
			require.Equal(t, nearest(v), y[i], "%x", math.Float32bits(v))
		}
	}
}

func TestAnElementOfAnIntegerFormIsExactToHalfAStepOfItsBlock(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 6))
	for range soak.Cases(200) {
		f, steps := Int8, 127.0
		if r.IntN(2) == 0 {
			f, steps = Int4, 7
		}
		x := draw(r, lengths[r.IntN(len(lengths))])
		to, y := make([]byte, f.Bytes(len(x))), make([]float32, len(x))
		f.Write(to, x, nil)
		f.Read(y, to)
		for lo := 0; lo < len(x); lo += Block {
			hi, most := min(lo+Block, len(x)), 0.0
			for _, v := range x[lo:hi] {
				if v := math.Abs(float64(v)); v <= math.MaxFloat32 {
					most = max(most, v)
				}
			}
			for i := lo; i < hi; i++ {
				if v := float64(x[i]); v-v != 0 {
					require.True(t, y[i] != y[i], "what is not finite is NaN")
					continue
				}
				require.InDelta(t, x[i], y[i], most/steps*0.5001+math.SmallestNonzeroFloat32*steps, "the largest of the block is %v", most)
			}
		}
	}
}

func TestWhatRoundingTakesIsWrittenLater(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 7))
	for _, f := range []Form{BFloat16, Int8, Int4} {
		for _, n := range lengths {
			lost, sum, came := make([]float32, n), make([]float64, n), make([]float64, n)
			to, y := make([]byte, f.Bytes(n)), make([]float32, n)
			most := 0.0
			for range 100 {
				x := make([]float32, n)
				for i := range x {
					x[i] = float32(r.NormFloat64())
					sum[i] += float64(x[i])
					most = max(most, math.Abs(float64(x[i])))
				}
				f.Write(to, x, lost)
				f.Read(y, to)
				for i := range y {
					came[i] += float64(y[i])
				}
			}
			for i := range sum {
				require.InDelta(t, sum[i], came[i]+float64(lost[i]), 1e-4, "nothing is lost")
				require.LessOrEqual(t, math.Abs(float64(lost[i])), most/map[Form]float64{BFloat16: 50, Int8: 50, Int4: 12}[f], "what is late does not grow")
			}
		}
	}
}

func TestABlockIsReadAlone(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 8))
	for _, f := range []Form{BFloat16, Int8, Int4} {
		x := draw(r, 3*Block+10)
		whole := make([]byte, f.Bytes(len(x)))
		f.Write(whole, x, nil)
		for lo := 0; lo < len(x); lo += Block {
			hi := min(lo+Block, len(x))
			part := make([]byte, f.Bytes(hi-lo))
			f.Write(part, x[lo:hi], nil)
			require.Equal(t, part, whole[f.Bytes(lo):f.Bytes(hi)], "%v", f)
		}
	}
}

func TestAFoldReadsFoldsAndWrites(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 9))
	for range soak.Cases(100) {
		f, n := Form(1+r.IntN(3)), lengths[r.IntN(len(lengths))]
		from, sums := make([][]byte, 1+r.IntN(5)), make([]float32, n)
		for k := range from {
			x := make([]float32, n)
			for i := range x {
				x[i] = float32(r.NormFloat64())
			}
			from[k] = make([]byte, f.Bytes(n))
			f.Write(from[k], x, nil)
			f.Read(x, from[k])
			for i := range x {
				sums[i] += x[i]
			}
		}
		lost := make([]float32, n)
		for i := range lost {
			lost[i] = float32(r.NormFloat64()) / 100
		}
		late := append([]float32(nil), lost...)
		want, dst := make([]byte, f.Bytes(n)), make([]byte, f.Bytes(n))
		f.Write(want, sums, late)
		if r.IntN(2) == 0 {
			dst = from[0]
		}
		f.Fold(dst, n, lost, func(out []float32, rows ...[]float32) {
			for i := range out {
				out[i] = 0
				for _, row := range rows {
					out[i] += row[i]
				}
			}
		}, from...)
		require.Equal(t, want, dst)
		require.True(t, slices.Equal(late, lost))
	}
}

func BenchmarkWrite(b *testing.B) {
	x, lost := make([]float32, 64*Block), make([]float32, 64*Block)
	for i := range x {
		x[i] = float32(i%1000) - 500
	}
	for _, f := range []Form{BFloat16, Int8, Int4} {
		b.Run(f.String(), func(b *testing.B) {
			to := make([]byte, f.Bytes(len(x)))
			b.SetBytes(int64(4 * len(x)))
			for b.Loop() {
				f.Write(to, x, lost)
			}
		})
	}
}
