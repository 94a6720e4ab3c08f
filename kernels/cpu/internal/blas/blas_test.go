package blas

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/cpu/internal/parallel"
)

// definition multiplies by the definition, in float64, into a copy of c.
func definition[T device.Float](p Product, a, b, c []T) []T {
	c = slices.Clone(c)
	for i := range p.M {
		for j := range p.N {
			var sum float64
			for l := range p.K {
				x, y := i*p.LDA+l, l*p.LDB+j
				if p.TransA {
					x = l*p.LDA + i
				}
				if p.TransB {
					y = j*p.LDB + l
				}
				sum += float64(a[x]) * float64(b[y])
			}
			if p.Add {
				sum += float64(c[i*p.LDC+j])
			}
			c[i*p.LDC+j] = T(sum)
		}
	}
	return c
}

// randomProduct is a product of up to most in each extent, with gaps between rows.
func randomProduct(r *rand.Rand, most int) Product {
	p := Contiguous(r.IntN(2) == 0, r.IntN(2) == 0, 1+r.IntN(most), 1+r.IntN(most), 1+r.IntN(most))
	p.LDA, p.LDB, p.LDC = p.LDA+r.IntN(9), p.LDB+r.IntN(9), p.LDC+r.IntN(9)
	p.Add = r.IntN(2) == 0
	return p
}

// drawn is a stored matrix of random numbers whose last row has no gap after it.
func drawn[T device.Float](r *rand.Rand, rows, cols, ld int) []T {
	x := make([]T, (rows-1)*ld+cols)
	for k := range x {
		x[k] = T(r.Float64()*2 - 1)
	}
	return x
}

func checkProduct[T device.Float](t *testing.T, p Product, delta float64, r *rand.Rand, mul func(p Product, a, b, c []T)) {
	ra, ca := p.storedA()
	rb, cb := p.storedB()
	a, b, c := drawn[T](r, ra, ca, p.LDA), drawn[T](r, rb, cb, p.LDB), drawn[T](r, p.M, p.N, p.LDC)
	want, again := definition(p, a, b, c), append([]T{0}, c...)
	mul(p, a, b, c)
	for k := range c {
		switch { // require takes long, element by element
		case k%p.LDC >= p.N && want[k] != c[k]:
			require.Equal(t, want[k], c[k], "%+v wrote between the rows, at %d", p, k)
		case k%p.LDC < p.N && !(math.Abs(float64(want[k])-float64(c[k])) <= delta):
			require.InDelta(t, want[k], c[k], delta, "%+v at %d", p, k)
		}
	}
	if !p.Add {
		for k := range again {
			if k > 0 && (k-1)%p.LDC < p.N {
				again[k] = T(math.NaN()) // garbage is no operand
			}
		}
	}
	// Elsewhere in memory.
	mul(p, append([]T{0}, a...)[1:], append([]T{0}, b...)[1:], again[1:])
	require.True(t, slices.Equal(c, again[1:]), "%+v", p)
}

func TestEveryGemmerMultipliesByTheDefinition(t *testing.T) {
	for name, g := range All() {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			for range 60 {
				p := randomProduct(r, 70)
				checkProduct(t, p, 2e-5, r, g.sgemm)
				checkProduct(t, p, 1e-13, r, g.dgemm)
			}
		})
	}
}

func TestTheEnvironmentForcesALibrary(t *testing.T) {
	open := choice{gemmer: plain{}, name: "openblas", detail: "libopenblas.so.0"}
	vectors := choice{gemmer: plain{}, name: "go", detail: "avx2"}
	missing, old := choice{err: errors.New("no such file")}, choice{err: errors.New("needs GOEXPERIMENT")}
	for _, c := range []struct {
		want          string
		open, vectors choice
		name          string
		detail        string
	}{
		{"", open, vectors, "openblas", "libopenblas.so.0"},
		{"", open, old, "openblas", "libopenblas.so.0"},
		{"", missing, vectors, "go", "avx2; OpenBLAS could not be opened: no such file; install it"},
		{"", missing, old, "gonum", "no such file"},
		{"", missing, old, "gonum", "needs GOEXPERIMENT"},
		{"gonum", open, vectors, "gonum", "WEFT_BLAS=gonum"},
		{"go", open, vectors, "go", "avx2"},
		{"go", open, old, "none", "needs GOEXPERIMENT"},
		{"openblas", open, vectors, "openblas", "libopenblas.so.0"},
		{"openblas", missing, vectors, "none", "libopenblas0"},
		{"mkl", open, vectors, "none", "expected openblas, go, gonum"},
	} {
		got := choose(c.want, c.open, c.vectors)
		require.Equal(t, c.name, got.name)
		require.Contains(t, got.detail, c.detail)
		if c.name == "none" {
			require.ErrorIs(t, got.err, kernels.ErrNoBackend)
		} else {
			require.NoError(t, got.err)
			require.NotNil(t, got.gemmer)
		}
	}
}

func TestBLASInfoNamesWhatIsUsed(t *testing.T) {
	name, detail := Info()
	require.Contains(t, []string{"openblas", "go", "gonum", "none"}, name)
	require.NotEmpty(t, detail)
}

func TestTheWorkOfAProductIsToldByExtentsAlone(t *testing.T) {
	const most = 1 << 15
	require.Equal(t, 27, Product{M: 3, N: 3, K: 3}.Work(most))
	require.Equal(t, most, Product{M: 33, N: 32, K: 32}.Work(most))
	require.Equal(t, most-1, Product{M: 1, N: 1, K: most - 1}.Work(most))
	require.Equal(t, most, Product{M: 1 << 30, N: 1 << 30, K: 1 << 30}.Work(most))
	require.Equal(t, most, Product{M: 1 << 31, N: 1 << 31, K: 4}.Work(most))
}

func TestAProductInPiecesIsTheProduct(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for name, g := range All() {
		for range 40 {
			p := randomProduct(r, 90)
			cut := func(p Product, rows, cols int) *cutProduct {
				k := new(cutProduct)
				k.hold(g, p, rows, cols)
				return k
			}
			rows, cols := 1+r.IntN(p.M), 1+r.IntN(p.N)
			checkProduct(t, p, 2e-5, r, func(p Product, a, b, c []float32) {
				k := cut(p, rows, cols)
				k.s = [3][]float32{a, b, c}
				parallel.NewPool(3).For(k.down*k.across, 1, k)
			})
			checkProduct(t, p, 1e-13, r, func(p Product, a, b, c []float64) {
				k := cut(p, rows, cols)
				k.d = [3][]float64{a, b, c}
				parallel.NewPool(3).For(k.down*k.across, 1, k)
			})
		}
		if name == "go" {
			continue // its pieces are bit for bit those of the whole, so that it may leave a product whole on one thread
		}
		rows, cols := g.cut(Contiguous(false, false, 5000, 5000, 5000))
		require.Equal(t, name == "plain", rows == 5000 && cols == 5000, name)
	}
}

func TestPiecesAreHalvesThatAreLargeEnough(t *testing.T) {
	for _, c := range []struct{ m, n, k, least, limit, rows, cols int }{
		{1024, 1024, 1024, 1 << 24, 512, 512, 512}, {64, 1024, 784, 1 << 24, 512, 64, 512}, {784, 1024, 64, 1 << 24, 512, 784, 512},
		{64, 1024, 10, 1 << 24, 512, 64, 1024}, {1 << 20, 1, 64, 1 << 24, 512, 1 << 18, 1}, {1024, 1024, 1024, 1 << 22, 128, 128, 128},
		{1 << 31, 1 << 31, 1, 1 << 24, 512, 4096, 4096}, {130, 130, 1 << 20, 1 << 22, 128, 128, 128},
	} {
		rows, cols := Product{M: c.m, N: c.n, K: c.k}.halved(c.least, c.limit)
		require.Equal(t, []int{c.rows, c.cols}, []int{rows, cols}, "%+v", c)
	}
}

func TestAProductOfNothingIsZeroOrLeavesWhatIsThere(t *testing.T) {
	for _, trans := range []bool{false, true} {
		p := Contiguous(trans, trans, 20, 30, 0)
		p.LDA, p.LDB = 30, 30
		c := make([]float32, 600)
		c[599], p.Add = 1, true
		Multiply(p, gonumBLAS{}, nil, nil, c)
		require.Equal(t, float32(1), c[599])
		p.Add = false
		Multiply(p, gonumBLAS{}, nil, nil, c)
		require.Zero(t, c[599])
	}
	Multiply(Contiguous(false, true, 0, 3, 3), plain{}, nil, make([]float32, 9), nil)
}

func TestProductsOfEverySizeAreTheSameByLoopAndLibrary(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, n := range []int{1, 2, 5, 6, 7, 33} {
		p := Contiguous(false, false, n, n, n)
		for _, g := range All() {
			checkProduct(t, p, 1e-5, r, func(p Product, a, b, c []float32) { Multiply(p, g, a, b, c) })
			checkProduct(t, p, 1e-13, r, func(p Product, a, b, c []float64) { Multiply(p, g, a, b, c) })
		}
	}
}
