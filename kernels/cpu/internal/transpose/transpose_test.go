package transpose

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/device"
)

func TestAMatrixIsTurnedAndNothingElseIsTouched(t *testing.T) {
	t.Run("float32", turns[float32])
	t.Run("float64", turns[float64])
	t.Run("int32", turns[int32])
	t.Run("int64", turns[int64])
}

func turns[E device.Number](t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 1000 {
		rows, n := r.IntN(40), r.IntN(40)
		row, step := n+r.IntN(5), rows+r.IntN(5)
		x := make([]E, max(0, (n-1)*step+rows))
		for i := range x {
			x[i] = E(i + 1)
		}
		o := make([]E, max(0, (rows-1)*row+n))
		want := make([]E, len(o))
		for i := range rows * n {
			want[i/n*row+i%n] = x[i%n*step+i/n]
		}
		for name, turn := range map[string]func(rows, n int, o []E, row int, x []E, step int){"matrix": Matrix[E], "plain": Plain[E]} {
			clear(o)
			turn(rows, n, o, row, x, step)
			require.Equal(t, want, o, "%s, %d×%d, rows %d and columns %d apart", name, rows, n, row, step)
		}
	}
}

func TestASliceThatIsTooShortIsNotWrittenPast(t *testing.T) {
	x, o := make([]int32, 64), make([]int32, 64)
	require.Panics(t, func() { Matrix(8, 8, o[:63], 8, x, 8) })
	require.Panics(t, func() { Matrix(8, 8, o, 8, x[:63], 8) })
	require.NotPanics(t, func() { Matrix(8, 8, o, 8, x, 8) })
}

// BenchmarkMatrix turns what stays in the first cache, and what a head of attention has: rows 768
// apart.
func BenchmarkMatrix(b *testing.B) {
	x, o := make([]float32, 128*768), make([]float32, 64*128)
	for _, c := range []struct {
		name          string
		rows, n, step int
		turn          func(rows, n int, o []float32, row int, x []float32, step int)
	}{
		{"small", 32, 64, 64, Matrix[float32]}, {"small-plain", 32, 64, 64, Plain[float32]},
		{"head", 64, 128, 768, Matrix[float32]}, {"head-plain", 64, 128, 768, Plain[float32]},
		{"head-by-8", 8, 128, 768, Matrix[float32]}, {"head-by-8-plain", 8, 128, 768, Plain[float32]},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(4 * c.rows * c.n))
			for b.Loop() {
				c.turn(c.rows, c.n, o, c.n, x, c.step)
			}
		})
	}
}
