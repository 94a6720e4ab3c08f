//go:build gpu && linux && (amd64 || arm64)

package native_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/device/cuda/native"
	"github.com/weft-project/weft/internal/cudatest"
	"github.com/weft-project/weft/internal/soak"
)

func TestCuBLASLtIsFoundWhereTheEnvironmentNamesIt(t *testing.T) {
	path, version, err := native.Library()
	require.NoError(t, err)
	require.Equal(t, os.Getenv("WEFT_CUBLASLT"), path)
	require.Equal(t, 130000, version)
}

// noBLASChild asks for a product where there is no library.
func noBLASChild() error {
	d, err := native.Open(0)
	if err != nil {
		return err
	}
	_, err = d.(cuda.Multiplier).Product(cuda.ProductSpec{M: 1, N: 1, K: 1})
	if !errors.Is(err, cuda.ErrNoLibrary) {
		panic(err)
	}
	return err
}

func TestWithoutCuBLASLtTheErrorSaysWhatToInstall(t *testing.T) {
	require.Regexp(t, "a CUDA library is missing: install libcublas.*/nonexistent.so: cannot open", childFails(t, "noblas", "WEFT_CUBLASLT=/nonexistent.so"))
	require.Regexp(t, "has no cublasLtGetVersion", childFails(t, "noblas", "WEFT_CUBLASLT=libm.so.6"))
}

func TestACuBLASLtThatIsNotOfAKnownVersionIsNotUsed(t *testing.T) {
	for _, version := range []string{"10203", "140100"} {
		said := childFails(t, "noblas", "WEFT_FAKE_CUBLASLT_VERSION="+version)
		require.Regexp(t, "a CUDA library is missing: .*is of version "+version+"; expected 11 to 13", said)
	}
	require.Regexp(t, "of version 130000, does not take Weft's descriptors: .*cuBLASLt says failed", childFails(t, "noblas", "WEFT_FAKE_CUBLASLT_LACKS=12"))
}

func TestACuBLASLtWithoutMemoryOrForAnotherDriverSaysSo(t *testing.T) {
	d := open(t).(cuda.Multiplier)
	spec := cuda.ProductSpec{M: 2, N: 2, K: 2}
	for status, want := range map[string]error{"3": device.ErrMemory, "1": cuda.ErrNoLibrary} {
		t.Setenv("WEFT_FAKE_CUBLASLT_CREATE", status)
		_, err := d.Product(spec)
		require.ErrorIs(t, err, want)
		require.ErrorContains(t, err, "cublasLtCreate")
	}
	t.Setenv("WEFT_FAKE_CUBLASLT_CREATE", "0")
	_, err := d.Product(spec)
	require.NoError(t, err, "what passes is not kept")
}

// operand is a matrix of a product, on the GPU and here, as stored.
type operand struct {
	at   uintptr
	elem cuda.Elem
	v    []float64
}

// products are what the tests of products need of a GPU.
type products struct {
	t *testing.T
	d cuda.Driver
	s cuda.Stream
}

func (p products) up(e cuda.Elem, v []float64) operand {
	raw := cudatest.Encode(e, v)
	at, err := p.d.Alloc(len(raw))
	require.NoError(p.t, err)
	pin, err := p.d.Pin(len(raw))
	require.NoError(p.t, err)
	copy(pin, raw)
	require.NoError(p.t, errors.Join(p.s.CopyIn(at, pin), p.s.Sync(), p.d.Unpin(pin)))
	return operand{at, e, cudatest.Decode(e, raw)}
}

// small makes numbers that all element types hold exactly.
func (p products) small(r *rand.Rand, e cuda.Elem, n int) operand {
	v := make([]float64, n)
	for k := range v {
		v[k] = float64(r.IntN(9)-4) / 4
	}
	return p.up(e, v)
}

func (p products) down(o operand) []float64 {
	pin, err := p.d.Pin(len(o.v) * o.elem.Size())
	require.NoError(p.t, err)
	require.NoError(p.t, errors.Join(p.s.CopyOut(pin, o.at), p.s.Sync()))
	v := cudatest.Decode(o.elem, pin)
	require.NoError(p.t, p.d.Unpin(pin))
	return v
}

func (p products) free(all ...operand) {
	for _, o := range all {
		require.NoError(p.t, p.d.Free(o.at))
	}
}

// run prepares and runs one product.
func (p products) run(spec cuda.ProductSpec, a, b, c, d, bias, aux uintptr) {
	pr, err := p.d.(cuda.Multiplier).Product(spec)
	require.NoError(p.t, err, "%+v", spec)
	again, err := p.d.(cuda.Multiplier).Product(spec)
	require.NoError(p.t, err)
	require.Same(p.t, pr, again, "a choice is kept")
	workspace, err := p.d.Alloc(pr.Workspace())
	require.NoError(p.t, err)
	var l cuda.List
	l.AddProduct(pr, a, b, c, d, bias, aux, workspace)
	require.NoError(p.t, errors.Join(p.s.Run(&l), p.s.Sync()), "%+v", spec)
	require.NoError(p.t, p.d.Free(workspace))
}

func newProducts(t *testing.T) products {
	d := open(t)
	s, err := d.Stream()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return products{t, d, s}
}

func at(v []float64, ld, row, col int, turned bool) float64 {
	if turned {
		row, col = col, row
	}
	return v[row*ld+col]
}

func TestProductsAreThoseOfTheirDefinition(t *testing.T) { cudatest.Products(t, open, soak.Cases(4)) }

func TestEpiloguesOfAForwardAndItsBackwardFitTogether(t *testing.T) {
	p := newProducts(t)
	r := rand.New(rand.NewPCG(3, 4))
	const m, n, k = 5, 3, 4
	a, b, bias := p.small(r, cuda.F32, m*k), p.small(r, cuda.F32, k*n), p.small(r, cuda.F32, n)
	plain := make([]float64, m*n) // a·b + bias
	for row := range m {
		for col := range n {
			plain[row*n+col] = bias.v[col]
			for x := range k {
				plain[row*n+col] += a.v[row*k+x] * b.v[x*n+col]
			}
		}
	}
	// The backward's product is grad·one, so that its result is what the epilogue makes of grad.
	grad, one := p.small(r, cuda.F32, m*n), p.up(cuda.F32, []float64{1, 0, 0, 0, 1, 0, 0, 0, 1})
	for _, c := range []struct {
		forward, backward cuda.Epilogue
		f                 func(float64) float64
	}{
		{cuda.ReLUAuxBias, cuda.DReLUBGrad, func(x float64) float64 { return max(x, 0) }},
		{cuda.GELUAuxBias, cuda.DGELUBGrad, cudatest.GELU},
	} {
		d, dx := p.small(r, cuda.F32, m*n), p.small(r, cuda.F32, m*n)
		aux, sums := p.small(r, cuda.F32, m*128), p.small(r, cuda.F32, n)
		p.run(cuda.ProductSpec{M: m, N: n, K: k, Epilogue: c.forward}, a.at, b.at, 0, d.at, bias.at, aux.at)
		want, back, total := make([]float64, m*n), make([]float64, m*n), make([]float64, n)
		for x := range plain {
			want[x] = c.f(plain[x])
			const h = 1e-6
			back[x] = grad.v[x] * (c.f(plain[x]+h) - c.f(plain[x]-h)) / (2 * h)
			if plain[x] == 0 && c.forward == cuda.ReLUAuxBias {
				back[x] = 0
			}
			total[x%n] += back[x]
		}
		require.InDeltaSlice(t, want, p.down(d), 1e-5)
		p.run(cuda.ProductSpec{M: m, N: n, K: n, Epilogue: c.backward}, grad.at, one.at, 0, dx.at, sums.at, aux.at)
		require.InDeltaSlice(t, back, p.down(dx), 1e-5, fmt.Sprint(c.backward))
		require.InDeltaSlice(t, total, p.down(sums), 1e-4)
		p.free(d, dx, aux, sums)
	}
	for e, want := range map[cuda.Epilogue]func(x float64) float64{
		cuda.Bias: func(x float64) float64 { return x }, cuda.ReLUBias: func(x float64) float64 { return max(x, 0) }, cuda.GELUBias: cudatest.GELU,
	} {
		d := p.small(r, cuda.F32, m*n)
		p.run(cuda.ProductSpec{M: m, N: n, K: k, Epilogue: e}, a.at, b.at, 0, d.at, bias.at, 0)
		for x, got := range p.down(d) {
			require.InDelta(t, want(plain[x]), got, 1e-5)
		}
		p.free(d)
	}
	p.free(a, b, bias, grad, one)
}

// toBF16 rounds a float32 to the nearest bfloat16, of the two nearest to the even one.
func toBF16(v float64) float64 {
	u := math.Float32bits(float32(v))
	if v == v {
		u += 0x7fff + u>>16&1
	}
	return float64(math.Float32frombits(u &^ 0xffff))
}

func TestResultsOfBFloat16AreRoundedAfterTheEpilogueAndTheirBiasIsBFloat16(t *testing.T) {
	p := newProducts(t)
	r := rand.New(rand.NewPCG(7, 8))
	const m, n, k = 5, 6, 7
	random := func(count int) operand { // sums of a few products of such numbers are exact in float64
		v := make([]float64, count)
		for x := range v {
			v[x] = toBF16(r.NormFloat64())
		}
		return p.up(cuda.BF16, v)
	}
	odd := 0
	for e, f := range map[cuda.Epilogue]func(sum, bias float64) float64{
		cuda.None:     func(sum, _ float64) float64 { return sum },
		cuda.Bias:     func(sum, bias float64) float64 { return sum + bias },
		cuda.ReLU:     func(sum, _ float64) float64 { return max(sum, 0) },
		cuda.ReLUBias: func(sum, bias float64) float64 { return max(sum+bias, 0) },
	} {
		for range 10 {
			a, b, bias, d := random(m*k), random(k*n), random(n), random(m*n)
			p.run(cuda.ProductSpec{M: m, N: n, K: k, In: cuda.BF16, Out: cuda.BF16, Epilogue: e}, a.at, b.at, 0, d.at, bias.at, 0)
			want := make([]float64, m*n)
			for at := range want {
				sum := 0.0
				for x := range k {
					sum += a.v[at/n*k+x] * b.v[x*n+at%n]
				}
				exact := f(sum, bias.v[at%n])
				if want[at] = toBF16(exact); want[at] != exact {
					odd++
				}
			}
			require.Equal(t, want, p.down(d), "epilogue %d", e)
			p.free(a, b, bias, d)
		}
	}
	require.Greater(t, odd, 100)
}

func TestWhatIsNoNumberOrInfiniteStaysSoInBFloat16(t *testing.T) {
	p := newProducts(t)
	nan, inf := math.NaN(), math.Inf(1)
	ones, d := p.up(cuda.BF16, []float64{1}), p.up(cuda.BF16, make([]float64, 4))
	for _, raw := range []uint16{0x7fff, 0x7fc0, 0xffff, 0x7f81} { // of NaN there are many
		a := p.up(cuda.BF16, []float64{inf, -inf, 0, math.MaxFloat32})
		pin, err := p.d.Pin(2)
		require.NoError(t, err)
		binary.LittleEndian.PutUint16(pin, raw)
		require.NoError(t, errors.Join(p.s.CopyIn(a.at+4, pin), p.s.Sync(), p.d.Unpin(pin)))
		p.run(cuda.ProductSpec{M: 4, N: 1, K: 1, In: cuda.BF16, Out: cuda.BF16}, a.at, ones.at, 0, d.at, 0, 0)
		require.Equal(t, fmt.Sprint([]float64{inf, -inf, nan, cudatest.Decode(cuda.BF16, []byte{0x7f, 0x7f})[0]}), fmt.Sprint(p.down(d)), "%x", raw)
		p.free(a)
	}
	p.free(ones, d)
}

func TestABiasGradientIsTheSumOfAFactor(t *testing.T) {
	p := newProducts(t)
	r := rand.New(rand.NewPCG(5, 6))
	const m, n, k = 3, 4, 5
	for _, turned := range []bool{false, true} {
		a, b, d := p.small(r, cuda.F32, m*k), p.small(r, cuda.F32, k*n), p.small(r, cuda.F32, m*n)
		ofA, ofB := p.small(r, cuda.F32, m), p.small(r, cuda.F32, n)
		s := cuda.ProductSpec{M: m, N: n, K: k, TransA: turned, TransB: turned}
		lda, ldb := k, n
		if turned {
			lda, ldb = m, k
		}
		s.Epilogue = cuda.BGradA
		p.run(s, a.at, b.at, 0, d.at, ofA.at, 0)
		s.Epilogue = cuda.BGradB
		p.run(s, a.at, b.at, 0, d.at, ofB.at, 0)
		wantA, wantB := make([]float64, m), make([]float64, n)
		for x := range k {
			for row := range wantA {
				wantA[row] += at(a.v, lda, row, x, turned)
			}
			for col := range wantB {
				wantB[col] += at(b.v, ldb, x, col, turned)
			}
		}
		require.InDeltaSlice(t, wantA, p.down(ofA), 1e-5)
		require.InDeltaSlice(t, wantB, p.down(ofB), 1e-5)
		p.free(a, b, d, ofA, ofB)
	}
}

func TestAProductThatTheLibraryLacksIsAnErrorOfItsOwn(t *testing.T) {
	d := open(t)
	_, err := d.(cuda.Multiplier).Product(cuda.ProductSpec{M: 2, N: 13, K: 2}) // which the fake refuses
	require.ErrorIs(t, err, cuda.ErrNoProduct)
	require.ErrorContains(t, err, "product 2×13×2: cuBLASLt says not supported")
	_, again := d.(cuda.Multiplier).Product(cuda.ProductSpec{M: 2, N: 13, K: 2})
	require.Same(t, err, again, "a refusal is kept, too")
}

// eightsChild asks for a product of 8 bits.
func eightsChild() error {
	d, err := native.Open(0)
	if err != nil {
		return err
	}
	_, err = d.(cuda.Multiplier).Product(cuda.ProductSpec{M: 16, N: 16, K: 16, In: cuda.E4M3, TransB: true, ScaleA: 256, ScaleB: 256})
	if errors.Is(err, cuda.ErrNoProduct) {
		return err
	}
	return errors.Join(err, errors.New("it was not refused"))
}

func TestALibraryBeforeScalesOf128ElementsIsNotAskedForProductsOf8Bits(t *testing.T) {
	require.Contains(t, childFails(t, "eights", "WEFT_FAKE_CUBLASLT_VERSION=120803"), "knows no scales of 128 elements, as versions from 12.9 on do")
	require.Equal(t, "it was not refused\n", childFails(t, "eights", "WEFT_FAKE_CUBLASLT_VERSION=120900"))
}

// The library's kernels may read a bias as widely as its address allowed when they were chosen: the
// address of a launch must not be worse aligned.
func TestABiasNeedsNoMoreAlignmentThanTheSpecPromises(t *testing.T) {
	p := newProducts(t)
	r := rand.New(rand.NewPCG(7, 8))
	const n, k = 4, 2
	for _, align := range []int{4, 8, 16, 64, 256} {
		by := align / 4 // elements that everything is shifted by
		a, b := p.small(r, cuda.F32, by+k), p.small(r, cuda.F32, by+k*n)
		d, bias, aux := p.small(r, cuda.F32, by+n), p.small(r, cuda.F32, by+n), p.small(r, cuda.F32, by+8)
		off := uintptr(align)
		p.run(cuda.ProductSpec{M: 1, N: n, K: k, Epilogue: cuda.GELUAuxBias, Align: align}, a.at+off, b.at+off, 0, d.at+off, bias.at+off, aux.at+off)
		got := p.down(d)[by:]
		for col := range n {
			want := bias.v[by+col]
			for x := range k {
				want += a.v[by+x] * b.v[by+x*n+col]
			}
			require.InDelta(t, cudatest.GELU(want), got[col], 1e-5)
		}
		p.free(a, b, d, bias, aux)
	}
}

func TestAProductRunsAmongKernelsAndInGraphs(t *testing.T) {
	p := newProducts(t)
	s := cuda.ProductSpec{M: 2, N: 2, K: 2}
	pr, err := p.d.(cuda.Multiplier).Product(s)
	require.NoError(t, err)
	workspace, err := p.d.Alloc(pr.Workspace())
	require.NoError(t, err)
	a, b, d := p.up(cuda.F32, []float64{1, 2, 3, 4}), p.up(cuda.F32, []float64{0, 1, 1, 0}), p.up(cuda.F32, make([]float64, 4))
	var l cuda.List
	double := find(t, p.d, "double")
	l.AddProduct(pr, a.at, b.at, 0, d.at, 0, 0, workspace)
	add(&l, double, d.at, 0, 0)
	g, err := p.s.Capture(func() error { return p.s.Run(&l) })
	require.NoError(t, err)
	require.NoError(t, p.s.Replay(g))
	got := p.down(d)
	require.Equal(t, []float64{1, 4, 3}, got[1:])
	require.Equal(t, 2*math.Float32bits(2), math.Float32bits(float32(got[0])), "the kernel after the product doubled its bits")
	l.Launches[0].Len--
	require.ErrorIs(t, p.s.Run(&l), cuda.ErrLaunch)
	l.Launches[0].Len++
	l.Args = binary.LittleEndian.AppendUint64(l.Args[:l.Launches[0].Off+48], 0) // no workspace, which the library needs
	l.Launches = l.Launches[:1]
	err = p.s.Run(&l)
	require.ErrorIs(t, err, cuda.ErrNoProduct)
	require.ErrorContains(t, err, "cublasLtMatmul")
	require.NoError(t, errors.Join(g.Close(), p.d.Free(workspace)))
	p.free(a, b, d)
}
