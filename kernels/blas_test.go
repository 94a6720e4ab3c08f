package kernels

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
)

// definition multiplies by the definition, in float64, into a copy of c.
func definition[T device.Float](p product, a, b, c []T) []T {
	c = slices.Clone(c)
	for i := range p.m {
		for j := range p.n {
			var sum float64
			for l := range p.k {
				x, y := i*p.lda+l, l*p.ldb+j
				if p.transA {
					x = l*p.lda + i
				}
				if p.transB {
					y = j*p.ldb + l
				}
				sum += float64(a[x]) * float64(b[y])
			}
			if p.add {
				sum += float64(c[i*p.ldc+j])
			}
			c[i*p.ldc+j] = T(sum)
		}
	}
	return c
}

// randomProduct is a product of up to most in each extent, with gaps between rows.
func randomProduct(r *rand.Rand, most int) product {
	p := contiguous(r.IntN(2) == 0, r.IntN(2) == 0, 1+r.IntN(most), 1+r.IntN(most), 1+r.IntN(most))
	p.lda, p.ldb, p.ldc = p.lda+r.IntN(9), p.ldb+r.IntN(9), p.ldc+r.IntN(9)
	p.add = r.IntN(2) == 0
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

func checkProduct[T device.Float](t *testing.T, p product, delta float64, r *rand.Rand, mul func(p product, a, b, c []T)) {
	ra, ca := p.storedA()
	rb, cb := p.storedB()
	a, b, c := drawn[T](r, ra, ca, p.lda), drawn[T](r, rb, cb, p.ldb), drawn[T](r, p.m, p.n, p.ldc)
	want, again := definition(p, a, b, c), append([]T{0}, c...)
	mul(p, a, b, c)
	for k := range c {
		switch { // require takes long, element by element
		case k%p.ldc >= p.n && want[k] != c[k]:
			require.Equal(t, want[k], c[k], "%+v wrote between the rows, at %d", p, k)
		case k%p.ldc < p.n && !(math.Abs(float64(want[k])-float64(c[k])) <= delta):
			require.InDelta(t, want[k], c[k], delta, "%+v at %d", p, k)
		}
	}
	if !p.add {
		for k := range again {
			if k > 0 && (k-1)%p.ldc < p.n {
				again[k] = T(math.NaN()) // garbage is no operand
			}
		}
	}
	// Elsewhere in memory.
	mul(p, append([]T{0}, a...)[1:], append([]T{0}, b...)[1:], again[1:])
	require.True(t, slices.Equal(c, again[1:]), "%+v", p)
}

func TestEveryGemmerMultipliesByTheDefinition(t *testing.T) {
	for name, g := range allGemmers() {
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
	open := blasChoice{gemmer: plain{}, name: "openblas", detail: "libopenblas.so.0"}
	vectors := blasChoice{gemmer: plain{}, name: "go", detail: "avx2"}
	missing, old := blasChoice{err: errors.New("no such file")}, blasChoice{err: errors.New("needs GOEXPERIMENT")}
	for _, c := range []struct {
		want          string
		open, vectors blasChoice
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
		got := chooseBLAS(c.want, c.open, c.vectors)
		require.Equal(t, c.name, got.name)
		require.Contains(t, got.detail, c.detail)
		if c.name == "none" {
			require.ErrorIs(t, got.err, ErrNoBackend)
		} else {
			require.NoError(t, got.err)
			require.NotNil(t, got.gemmer)
		}
	}
}

func TestBLASInfoNamesWhatIsUsed(t *testing.T) {
	name, detail := blasInfo()
	require.Contains(t, []string{"openblas", "go", "gonum", "none"}, name)
	require.NotEmpty(t, detail)
}

func TestTheWorkOfAProductIsToldByExtentsAlone(t *testing.T) {
	const most = 1 << 15
	require.Equal(t, 27, product{m: 3, n: 3, k: 3}.work(most))
	require.Equal(t, most, product{m: 33, n: 32, k: 32}.work(most))
	require.Equal(t, most-1, product{m: 1, n: 1, k: most - 1}.work(most))
	require.Equal(t, most, product{m: 1 << 30, n: 1 << 30, k: 1 << 30}.work(most))
	require.Equal(t, most, product{m: 1 << 31, n: 1 << 31, k: 4}.work(most))
}

func TestAProductInPiecesIsTheProduct(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for name, g := range allGemmers() {
		for range 40 {
			p := randomProduct(r, 90)
			cut := func(p product, rows, cols int) *cutProduct {
				k := new(cutProduct)
				k.hold(g, p, rows, cols)
				return k
			}
			rows, cols := 1+r.IntN(p.m), 1+r.IntN(p.n)
			checkProduct(t, p, 2e-5, r, func(p product, a, b, c []float32) {
				k := cut(p, rows, cols)
				k.s = [3][]float32{a, b, c}
				newCrew(3).spread(k.down*k.across, 1, k)
			})
			checkProduct(t, p, 1e-13, r, func(p product, a, b, c []float64) {
				k := cut(p, rows, cols)
				k.d = [3][]float64{a, b, c}
				newCrew(3).spread(k.down*k.across, 1, k)
			})
		}
		if name == "go" {
			continue // its pieces are bit for bit those of the whole, so that it may leave a product whole on one thread
		}
		rows, cols := g.cut(contiguous(false, false, 5000, 5000, 5000))
		require.Equal(t, name == "plain", rows == 5000 && cols == 5000, name)
	}
}

func TestPiecesAreHalvesThatAreLargeEnough(t *testing.T) {
	for _, c := range []struct{ m, n, k, least, limit, rows, cols int }{
		{1024, 1024, 1024, 1 << 24, 512, 512, 512}, {64, 1024, 784, 1 << 24, 512, 64, 512}, {784, 1024, 64, 1 << 24, 512, 784, 512},
		{64, 1024, 10, 1 << 24, 512, 64, 1024}, {1 << 20, 1, 64, 1 << 24, 512, 1 << 18, 1}, {1024, 1024, 1024, 1 << 22, 128, 128, 128},
		{1 << 31, 1 << 31, 1, 1 << 24, 512, 4096, 4096}, {130, 130, 1 << 20, 1 << 22, 128, 128, 128},
	} {
		rows, cols := product{m: c.m, n: c.n, k: c.k}.halved(c.least, c.limit)
		require.Equal(t, []int{c.rows, c.cols}, []int{rows, cols}, "%+v", c)
	}
}

func TestAProductOfNothingIsZeroOrLeavesWhatIsThere(t *testing.T) {
	for _, trans := range []bool{false, true} {
		p := contiguous(trans, trans, 20, 30, 0)
		p.lda, p.ldb = 30, 30
		c := make([]float32, 600)
		c[599], p.add = 1, true
		multiply(p, gonumBLAS{}, nil, nil, c)
		require.Equal(t, float32(1), c[599])
		p.add = false
		multiply(p, gonumBLAS{}, nil, nil, c)
		require.Zero(t, c[599])
	}
	multiply(contiguous(false, true, 0, 3, 3), plain{}, nil, make([]float32, 9), nil)
}

func TestProductsOfEverySizeAreTheSameByLoopAndLibrary(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, n := range []int{1, 2, 5, 6, 7, 33} {
		p := contiguous(false, false, n, n, n)
		for _, g := range allGemmers() {
			checkProduct(t, p, 1e-5, r, func(p product, a, b, c []float32) { multiply(p, g, a, b, c) })
			checkProduct(t, p, 1e-13, r, func(p product, a, b, c []float64) { multiply(p, g, a, b, c) })
		}
	}
}
