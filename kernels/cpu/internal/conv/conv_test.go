package conv

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEveryTileAgreesWithItsDefinition(t *testing.T) {
	t.Run("float32", func(t *testing.T) { tiles[float32](t, 1e-5) })
	t.Run("float64", func(t *testing.T) { tiles[float64](t, 1e-13) })
}

func tiles[T Float](t *testing.T, tol float64) {
	all := All[T]()
	require.Equal(t, "plain", all[len(all)-1].Name)
	r := rand.New(rand.NewPCG(1, 1))
	draw := func(n int) []T {
		x := make([]T, n)
		for k := range x {
			x[k] = T(r.NormFloat64())
		}
		return x
	}
	for _, k := range all {
		for range 200 {
			steps, add := r.IntN(20), r.IntN(2) == 0
			step, lda, ldb := 1+r.IntN(5), r.IntN(30), r.IntN(40)
			ldv := k.Lanes + r.IntN(3)
			ldc := ldv + k.Lanes + r.IntN(3)
			a, b, off := draw(steps*step+Rows*lda+k.Lanes), draw(100+ldb+k.Lanes), make([]int, steps)
			for n := range off {
				off[n] = r.IntN(100)
			}
			c := draw(Rows*ldc + ldv + k.Lanes)
			got := append([]T{}, c...)
			k.Tile(a, lda, step, b, ldb, off, got, ldc, ldv, add)
			want := make([]float64, len(c))
			for n, v := range c {
				want[n] = float64(v)
			}
			for row := range Rows {
				for v := range 2 {
					for l := range k.Lanes {
						s := 0.0
						for n, o := range off {
							s += float64(a[n*step+row*lda+l]) * float64(b[o+v*ldb+l])
						}
						if add {
							s += want[row*ldc+v*ldv+l]
						}
						want[row*ldc+v*ldv+l] = s
					}
				}
			}
			for n := range want {
				require.LessOrEqual(t, math.Abs(want[n]-float64(got[n])), tol*(1+math.Abs(want[n])), "%s, element %d", k.Name, n)
			}
		}
		x, o := draw(8), make([]T, 5*k.Lanes)
		k.Splat(o, x)
		for n, v := range o {
			require.Equal(t, x[n/k.Lanes], v, k.Name)
		}
		x, o = draw(8*k.Lanes), draw(8)
		k.Sums(o, x)
		for n := range o {
			want := 0.0
			for _, v := range x[n*k.Lanes : (n+1)*k.Lanes] {
				want += float64(v)
			}
			require.InDelta(t, want, float64(o[n]), tol*10, k.Name)
		}
	}
}

// BenchmarkTile reports the best of many runs: what the tile can do while nobody else uses the
// processor.
func BenchmarkTile(b *testing.B) {
	for _, k := range All[float32]() {
		b.Run(k.Name, func(b *testing.B) {
			const steps = 96
			a, x, c, off := make([]float32, steps*Rows*k.Lanes), make([]float32, 1<<14), make([]float32, 2*Rows*k.Lanes), make([]int, steps)
			for n := range off {
				off[n] = n/9*256 + n/3%3*16 + n%3
			}
			best := time.Hour
			for b.Loop() {
				began := time.Now()
				for j := range 4 {
					k.Tile(a, k.Lanes, Rows*k.Lanes, x[j*2*k.Lanes:], k.Lanes, off, c, 2*k.Lanes, k.Lanes, false)
				}
				best = min(best, time.Since(began))
			}
			b.ReportMetric(4*2*float64(steps*2*Rows*k.Lanes)/float64(best.Nanoseconds()), "GFLOP/s")
		})
	}
}
