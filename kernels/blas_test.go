package kernels

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/device"
)

// gemmers are those that can be tested on this machine.
func gemmers() map[string]gemmer {
	all := map[string]gemmer{"plain": plain{}, "gonum": gonumBLAS{}}
	if c := openBLAS(); c.err == nil {
		all["openblas"] = c.gemmer
	}
	return all
}

// definition multiplies by the definition, in float64.
func definition[T device.Float](p product, a, b []T) []float64 {
	c := make([]float64, p.m*p.n)
	for i := range p.m {
		for j := range p.n {
			for l := range p.k {
				x, y := i*p.k+l, l*p.n+j
				if p.transA {
					x = l*p.m + i
				}
				if p.transB {
					y = j*p.k + l
				}
				c[i*p.n+j] += float64(a[x]) * float64(b[y])
			}
		}
	}
	return c
}

func checkProduct[T device.Float](t *testing.T, p product, delta float64, r *rand.Rand, mul func(p product, a, b, c []T)) {
	draw := func(n int) []T {
		x := make([]T, n)
		for k := range x {
			x[k] = T(r.Float64()*2 - 1)
		}
		return x
	}
	a, b, c, again := draw(p.m*p.k), draw(p.k*p.n), draw(p.m*p.n), draw(p.m*p.n+1)
	mul(p, a, b, c)
	want := definition(p, a, b)
	for k := range c {
		require.InDelta(t, want[k], float64(c[k]), delta, "%+v at %d", p, k)
	}
	mul(p, a, b, again[1:]) // elsewhere in memory, over other garbage
	require.Equal(t, c, again[1:], "%+v", p)
}

func TestEveryGemmerMultipliesByTheDefinition(t *testing.T) {
	for name, g := range gemmers() {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			for range 30 {
				p := product{r.IntN(2) == 0, r.IntN(2) == 0, 1 + r.IntN(70), 1 + r.IntN(70), 1 + r.IntN(70)}
				checkProduct(t, p, 2e-5, r, g.sgemm)
				checkProduct(t, p, 1e-13, r, g.dgemm)
			}
		})
	}
}

func TestMatMulWithEveryGemmerIsTheSameProduct(t *testing.T) {
	in := []Type{{device.Float32, device.Shape{3, 40, 50}}, {device.Float32, device.Shape{50, 60}}}
	a, b := make([]float32, 3*40*50), make([]float32, 50*60)
	for k := range a {
		a[k] = float32(k%7) - 3
	}
	for k := range b {
		b[k] = float32(k%5) - 2
	}
	out, err := MatMul{}.Infer(in)
	require.NoError(t, err)
	want := definition(product{m: 120, n: 60, k: 50}, a, b)
	for name, g := range gemmers() {
		c := make([]float32, out[0].Shape.Elems())
		run := matMulBody[float32](MatMul{}, in, out[0], g)
		require.NoError(t, run([][]byte{device.Bytes(c)}, [][]byte{device.Bytes(a), device.Bytes(b)}))
		for k := range c {
			require.Equal(t, float32(want[k]), c[k], name) // small integers are exact
		}
	}
}

func TestTheEnvironmentForcesALibrary(t *testing.T) {
	open := blasChoice{gemmer: plain{}, name: "openblas", detail: "libopenblas.so.0"}
	missing := blasChoice{err: errors.New("no such file")}
	for _, c := range []struct {
		want   string
		found  blasChoice
		name   string
		detail string
	}{
		{"", open, "openblas", "libopenblas.so.0"},
		{"", missing, "gonum", "no such file"},
		{"", missing, "gonum", "libopenblas0"},
		{"gonum", open, "gonum", "WEFT_BLAS=gonum"},
		{"openblas", open, "openblas", "libopenblas.so.0"},
		{"openblas", missing, "none", "libopenblas0"},
		{"mkl", open, "none", "expected openblas, gonum"},
	} {
		got := chooseBLAS(c.want, c.found)
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
	name, detail := BLASInfo()
	require.Contains(t, []string{"openblas", "gonum", "none"}, name)
	require.NotEmpty(t, detail)
}

func TestTinyProductsAreToldByExtentsAlone(t *testing.T) {
	for _, c := range []struct {
		p    product
		tiny bool
	}{
		{product{m: 3, n: 3, k: 3}, true}, {product{m: 32, n: 32, k: 32}, true}, {product{m: 33, n: 32, k: 32}, false},
		{product{m: 1, n: 1, k: 1 << 15}, true}, {product{m: 1, n: 1, k: 1<<15 + 1}, false},
		{product{m: 1 << 30, n: 1 << 30, k: 1 << 30}, false},
	} {
		require.Equal(t, c.tiny, c.p.tiny(), "%+v", c.p)
	}
}
