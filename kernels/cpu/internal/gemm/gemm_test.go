package gemm

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/internal/soak"
)

// plainTile is the tile by its definition.
func plainTile[T Float](rows, cols, over int) *Kernel[T] {
	mul := func(k int, a []T, rs, cs int, b []T, ldb int, c []T, ldc int, add bool) {
		_ = a[(rows-1)*rs+(k-1)*cs+over] // what a tile may read
		for r := range rows {
			for j := range cols {
				var s T
				for p := range k {
					s += a[r*rs+p*cs] * b[p*ldb+j]
				}
				if add {
					s += c[r*ldc+j]
				}
				c[r*ldc+j] = s
			}
		}
	}
	return &Kernel[T]{Name: "plain", tile: tile[T]{rows, cols, over, mul}}
}

func kernels32() []*Kernel[float32] {
	return append(tiles32(), plainTile[float32](2, 64, 3), plainTile[float32](3, 8, 0), plainTile[float32](4, 5, 7))
}

func kernels64() []*Kernel[float64] {
	return append(tiles64(), plainTile[float64](2, 32, 1), plainTile[float64](3, 8, 0), plainTile[float64](4, 5, 7))
}

// stored are the rows and columns of the operands as they lie in memory.
func (p Product) stored() (ra, ca, rb, cb int) {
	ra, ca, rb, cb = p.M, p.K, p.K, p.N
	if p.TransA {
		ra, ca = ca, ra
	}
	if p.TransB {
		rb, cb = cb, rb
	}
	return
}

func random(r *rand.Rand, m, n, k int) Product {
	p := Product{TransA: r.IntN(2) == 0, TransB: r.IntN(2) == 0, M: m, N: n, K: k, Add: r.IntN(2) == 0}
	_, ca, _, cb := p.stored()
	p.LDA, p.LDB, p.LDC = ca+r.IntN(5), cb+r.IntN(5), n+r.IntN(5)
	return p
}

// drawn is a matrix without a gap after its last row, and with no room after it that could be read
// unnoticed.
func drawn[T Float](r *rand.Rand, rows, cols, ld int) []T {
	x := make([]T, max(0, (rows-1)*ld+cols))
	for k := range x {
		x[k] = T(r.Float64()*2 - 1)
	}
	return slices.Clip(x)
}

// check compares a product with the definition, carried out in float64, and what lies between the
// rows with what lay there.
func check[T Float](t testing.TB, kern *Kernel[T], p Product, r *rand.Rand, delta float64) {
	ra, ca, rb, cb := p.stored()
	a, b, c := drawn[T](r, ra, ca, p.LDA), drawn[T](r, rb, cb, p.LDB), drawn[T](r, p.M, p.N, p.LDC)
	was := slices.Clone(c)
	if !p.Add {
		for i := range p.M {
			for j := range p.N {
				c[i*p.LDC+j] = T(math.NaN()) // garbage is no operand
			}
		}
	}
	kern.Mul(p, a, b, c)
	for at, got := range c {
		i, j := at/p.LDC, at%p.LDC
		if j >= p.N {
			require.Equal(t, was[at], got, "%s %+v wrote between the rows", kern.Name, p)
			continue
		}
		want := 0.0
		if p.Add {
			want = float64(was[at])
		}
		for l := range p.K {
			x, y := i*p.LDA+l, l*p.LDB+j
			if p.TransA {
				x = l*p.LDA + i
			}
			if p.TransB {
				y = j*p.LDB + l
			}
			want += float64(a[x]) * float64(b[y])
		}
		if !(math.Abs(want-float64(got)) <= delta*math.Sqrt(float64(p.K+1))) {
			t.Fatalf("%s %+v: (%d, %d) is %v; expected %v", kern.Name, p, i, j, got, want)
		}
	}
}

func TestEveryKernelMultipliesByTheDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range soak.Cases(40) {
		most := []int{4, 40, 100, 200}[r.IntN(4)]
		p := random(r, r.IntN(most), r.IntN(most), r.IntN(most))
		switch r.IntN(8) {
		case 0:
			p = random(r, 1+r.IntN(3), 1+r.IntN(3), 1+r.IntN(2*Depth))
		case 1:
			p = random(r, tall-3+r.IntN(6), 1+r.IntN(8), 1+r.IntN(5))
		case 2:
			p = random(r, broad-3+r.IntN(6), 1+r.IntN(20), 1+r.IntN(5))
		}
		for _, k := range kernels32() {
			check(t, k, p, r, 1e-6)
		}
		for _, k := range kernels64() {
			check(t, k, p, r, 1e-14)
		}
	}
}

func TestAProductInPiecesIsTheSameProductBitForBit(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, kern := range kernels32() {
		for range soak.Cases(8) {
			p := random(r, 1+r.IntN(200), 1+r.IntN(200), 1+r.IntN(300))
			ra, ca, rb, cb := p.stored()
			a, b, c := drawn[float32](r, ra, ca, p.LDA), drawn[float32](r, rb, cb, p.LDB), drawn[float32](r, p.M, p.N, p.LDC)
			pieces := slices.Clone(c)
			kern.Mul(p, a, b, c)
			i, j := r.IntN(p.M), r.IntN(p.N)
			for _, q := range [][4]int{{0, 0, i, j}, {i, 0, p.M, j}, {0, j, i, p.N}, {i, j, p.M, p.N}} {
				s, x, y := p, q[0]*p.LDA, q[1]
				s.M, s.N = q[2]-q[0], q[3]-q[1]
				if p.TransA {
					x = q[0]
				}
				if p.TransB {
					y *= p.LDB
				}
				if s.M > 0 && s.N > 0 {
					kern.Mul(s, a[x:], b[y:], pieces[q[0]*p.LDC+q[1]:])
				}
			}
			require.Equal(t, c, pieces, "%s %+v at %d, %d", kern.Name, p, i, j)
		}
	}
}

func FuzzMul(f *testing.F) {
	f.Add(uint64(1), 3, 70, 200)
	f.Add(uint64(2), 130, 5, 129)
	f.Fuzz(func(t *testing.T, seed uint64, m, n, k int) {
		m, n = int(uint(m)%601), int(uint(n)%301)
		k = int(uint(k) % uint(min(600, 1<<22/max(1, m*n))+1))
		r := rand.New(rand.NewPCG(seed, 0))
		p := random(r, m, n, k)
		for _, kern := range tiles32() {
			check(t, kern, p, r, 1e-6)
		}
		for _, kern := range tiles64() {
			check(t, kern, p, r, 1e-14)
		}
		check(t, plainTile[float64](3, 8, 2), p, r, 1e-14)
	})
}
