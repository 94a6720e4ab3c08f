package cudatest

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device/cuda"
)

// Products holds a driver's library for products, which is a [cuda.Multiplier], to their
// definition: of all types, shapes and ways to lie, with epilogues. It is so many cases of each
// type and epilogue. Where there is no library, the error must say so.
func Products(t *testing.T, open func(t *testing.T) cuda.Driver, cases int) {
	for _, kind := range kinds {
		for _, e := range slices.Sorted(maps.Keys(epilogues)) {
			if kind.in.Scaled() && (e > cuda.ReLUBias || e.HasBias() && kind.out == cuda.F32) {
				continue // there is no such product
			}
			t.Run(fmt.Sprintf("%s, epilogue %d", kind.name, e), func(t *testing.T) {
				with(t, open(t), func(r *rig) {
					products(r, kind, e, cases)
					require.NoError(r, r.s.Close())
				})
			})
		}
	}
}

// kind is types of elements and how they are multiplied.
type kind struct {
	name    string
	in, out cuda.Elem
	how     cuda.Arithmetic
	bits    int // of the factors
	sums    int // bits to which sums are sure to be exact: tensor cores add without rounding to the nearest
}

var kinds = []kind{
	{"float32", cuda.F32, cuda.F32, cuda.Exact, 24, 22},
	{"TF32", cuda.F32, cuda.F32, cuda.TF32, 11, 20},
	{"float64", cuda.F64, cuda.F64, cuda.Exact, 53, 51},
	{"BF16 to float32", cuda.BF16, cuda.F32, cuda.Exact, 8, 20},
	{"BF16", cuda.BF16, cuda.BF16, cuda.Exact, 8, 20},
	{"float16", cuda.F16, cuda.F16, cuda.Exact, 11, 20},
	{"E4M3 to float32", cuda.E4M3, cuda.F32, cuda.Exact, 4, 13}, // some tensor cores add 8 bits with 13
	{"E4M3", cuda.E4M3, cuda.BF16, cuda.Exact, 4, 13},
	{"E5M2", cuda.E5M2, cuda.BF16, cuda.Exact, 3, 13},
}

// epilogues are those of a forward, and the least bits to which they are computed.
var epilogues = map[cuda.Epilogue]struct {
	f    func(x float64) float64
	bits int
}{
	cuda.None: {same, 53}, cuda.Bias: {same, 53}, cuda.ReLU: {relu, 53}, cuda.ReLUBias: {relu, 53},
	cuda.GELU: {GELU, 6}, cuda.GELUBias: {GELU, 6}, // by an approximation of tanh, of half precision too
}

func same(x float64) float64 { return x }
func relu(x float64) float64 { return max(x, 0) }

func products(r *rig, k kind, e cuda.Epilogue, cases int) {
	lib, ok := r.d.(cuda.Multiplier)
	require.True(r, ok, "the driver is no cuda.Multiplier")
	if _, err := lib.Product(cuda.ProductSpec{M: 1, N: 1, K: 1}); errors.Is(err, cuda.ErrNoLibrary) {
		require.ErrorContains(r, err, "install libcublas")
		r.Log(err)
		return
	}
	src := rand.New(rand.NewPCG(uint64(e), uint64(k.bits)+100*uint64(k.out)))
	lacking := 0
	for range cases {
		s := drawSpec(src, k, e)
		p, err := lib.Product(s)
		if errors.Is(err, cuda.ErrNoProduct) && !needed(k, s) {
			r.Logf("%v: %+v", err, s)
			lacking++
			continue
		}
		require.NoError(r, err, "%+v", s)
		r.multiply(src, k, p, s)
	}
	r.Logf("%d of %d products are lacking", lacking, cases)
}

// needed says whether no library may lack a product: of matrices without gaps, with what Weft asks
// for. It has kernels for all else, and those of 8 bits are few libraries'.
func needed(k kind, s cuda.ProductSpec) bool {
	return !k.in.Scaled() && s.LDA == 0 && (s.Epilogue == cuda.None || s.Epilogue <= cuda.ReLUBias && k.in != cuda.F64 && k.in != cuda.F16)
}

// drawSpec draws a product: dense, or with gaps that are odd.
func drawSpec(src *rand.Rand, k kind, e cuda.Epilogue) cuda.ProductSpec {
	most := 24
	if src.IntN(8) == 0 {
		most = 150
	}
	s := cuda.ProductSpec{
		M: 1 + src.IntN(most), N: 1 + src.IntN(most), K: 1 + src.IntN(most), TransA: src.IntN(2) == 0, TransB: src.IntN(2) == 0,
		In: k.in, Out: k.out, Arithmetic: k.how, Epilogue: e, Batch: 1 + src.IntN(3),
	}
	if k.in.Scaled() {
		s.M, s.N, s.K, s.Batch, s.TransA, s.TransB = 16*(1+src.IntN(3)), 16*(1+src.IntN(3)), 16*(1+src.IntN(20)), 1, false, true
		s.ScaleA, s.ScaleB = s.M*s.K+16*src.IntN(3), s.N*s.K+16*src.IntN(3)
		if k.in == cuda.E5M2 { // one of the two
			s.InB = cuda.E4M3
		}
		return s
	}
	if src.IntN(4) == 0 { // as tensors of a network mostly are
		s.M, s.N, s.K, s.Batch = (s.M+7)&^7, (s.N+7)&^7, (s.K+7)&^7, 1
		return s
	}
	s.Align = max(k.in.Size(), k.out.Size())
	s.LDA, s.LDB, s.LDC, s.LDD = most+src.IntN(8), most+src.IntN(8), most+src.IntN(8), most+src.IntN(8)
	s.StrideA, s.StrideB, s.StrideC, s.StrideD = most*s.LDA+src.IntN(8), most*s.LDB+src.IntN(8), most*s.LDC+src.IntN(8), most*s.LDD+src.IntN(8)
	s.Accumulate = src.IntN(3) == 0 && e == cuda.None
	return s
}

// matrix is numbers on the GPU.
type matrix struct {
	at uintptr // of the first, behind some that are not looked at
	v  []float64
}

// matrix makes n numbers of some significant bits, at an address that is a multiple of align and of
// nothing larger.
func (r *rig) matrix(src *rand.Rand, e cuda.Elem, n, bits, align int) matrix {
	v := make([]float64, n)
	for k := range v {
		if v[k] = Rounded(src.NormFloat64(), min(bits, Bits(e))); math.Abs(v[k]) < 1e-3 { // of float16 there are no such in full
			v[k] = 0
		}
	}
	raw := Encode(e, v)
	block, pin := r.alloc(align+len(raw)), r.pin(len(raw))
	copy(pin, raw)
	m := matrix{block + uintptr(align), v}
	require.NoError(r, errors.Join(r.s.CopyIn(m.at, pin), r.s.Sync(), r.d.Unpin(pin)))
	return m
}

// scaled is matrix for rows of 8 bits, with their scales some bytes on; the numbers are scaled.
func (r *rig) scaled(src *rand.Rand, e cuda.Elem, rows, terms, scales int) matrix {
	raw, v := make([]byte, scales), make([]float64, rows*terms)
	for k := range v {
		raw[k] = byte(src.IntN(256))
		if v[k] = eight(e, raw[k]); math.IsNaN(v[k]) || math.IsInf(v[k], 0) {
			raw[k], v[k] = 0, 0
		}
	}
	for n := range cuda.Scales(rows, terms) {
		scale := float32(math.Exp(src.NormFloat64()))
		raw = append(raw, Encode(cuda.F32, []float64{float64(scale)})...)
		from := n%rows*terms + n/rows*cuda.ScaledTerms
		for k := from; k < min(from+cuda.ScaledTerms, (n%rows+1)*terms); k++ {
			v[k] *= float64(scale)
		}
	}
	block, pin := r.alloc(16+len(raw)), r.pin(len(raw))
	copy(pin, raw)
	require.NoError(r, errors.Join(r.s.CopyIn(block+16, pin), r.s.Sync(), r.d.Unpin(pin)))
	return matrix{block + 16, v}
}

// multiply runs a product and compares all of its result, and what lies between.
func (r *rig) multiply(src *rand.Rand, k kind, p cuda.Product, s cuda.ProductSpec) {
	s, err := s.Filled()
	require.NoError(r, err)
	stored := func(rows, cols, ld, stride int, turned bool) int {
		if turned {
			rows = cols
		}
		return (s.Batch-1)*stride + rows*ld
	}
	var a, b matrix
	if k.in.Scaled() {
		a, b = r.scaled(src, s.In, s.M, s.K, s.ScaleA), r.scaled(src, s.InB, s.N, s.K, s.ScaleB)
	} else {
		a = r.matrix(src, s.In, stored(s.M, s.K, s.LDA, s.StrideA, s.TransA), k.bits, s.Align)
		b = r.matrix(src, s.In, stored(s.K, s.N, s.LDB, s.StrideB, s.TransB), k.bits, s.Align)
	}
	c := r.matrix(src, s.Out, stored(s.M, s.N, s.LDC, s.StrideC, false), 53, s.Align)
	d := r.matrix(src, s.Out, stored(s.M, s.N, s.LDD, s.StrideD, false), 53, s.Align)
	bias := r.matrix(src, s.Out, s.N, 53, s.Align)
	work := r.alloc(max(1, p.Workspace()))
	var l cuda.List
	l.AddProduct(p, a.at, b.at, c.at, d.at, bias.at, 0, work)
	require.NoError(r, errors.Join(r.s.Run(&l), r.s.Sync()), "%+v", s)

	got := r.numbers(s.Out, d)
	looked := make([]bool, len(got))
	for z := range s.Batch {
		for i := range s.M {
			for j := range s.N {
				at := z*s.StrideD + i*s.LDD + j
				want, slack := defined(s, k, i, j, a.v[z*s.StrideA:], b.v[z*s.StrideB:], c.v[z*s.StrideC:], bias.v)
				looked[at] = true
				if !(math.Abs(got[at]-want) <= slack) {
					require.Failf(r, "a wrong number", "%v instead of %v ± %v in row %d, column %d of matrix %d: %+v", got[at], want, slack, i, j, z, s)
				}
			}
		}
	}
	for at, v := range d.v {
		if !looked[at] && got[at] != v {
			require.Failf(r, "what lies between was written", "%v is %v at %d: %+v", v, got[at], at, s)
		}
	}
	for _, m := range []matrix{a, b, c, d, bias} {
		require.NoError(r, r.d.Free(m.at-uintptr(s.Align)))
	}
	require.NoError(r, r.d.Free(work))
}

// numbers brings a matrix back.
func (r *rig) numbers(e cuda.Elem, m matrix) []float64 {
	pin := r.pin(len(m.v) * e.Size())
	require.NoError(r, errors.Join(r.s.CopyOut(pin, m.at), r.s.Sync()))
	v := Decode(e, pin)
	require.NoError(r, r.d.Unpin(pin))
	return v
}

// defined is an element of a product, and by how much it may be off: by the rounding of sums, of
// the epilogue and of the result.
func defined(s cuda.ProductSpec, k kind, i, j int, a, b, c, bias []float64) (want, slack float64) {
	at := func(v []float64, ld, row, col int, turned bool) float64 {
		if turned {
			row, col = col, row
		}
		return v[row*ld+col]
	}
	var sum, size float64
	add := func(x float64) { sum, size = sum+x, size+math.Abs(x) }
	for n := range s.K {
		add(at(a, s.LDA, i, n, s.TransA) * at(b, s.LDB, n, j, s.TransB))
	}
	product := sum
	if s.Accumulate {
		add(c[i*s.LDC+j])
	}
	if s.Epilogue.HasBias() {
		add(bias[j])
	}
	unit := func(bits int) float64 { return math.Ldexp(1, -bits) }
	e := epilogues[s.Epilogue]
	slack = size*float64(s.K+4)*unit(k.sums) + math.Abs(sum)*(unit(e.bits)+unit(Bits(s.Out)))
	if s.Epilogue == cuda.GELU || s.Epilogue == cuda.GELUBias { // some libraries store the product before it
		slack += 2 * math.Abs(product) * unit(Bits(s.Out))
	}
	if s.Out == cuda.F16 {
		slack += unit(24) // its smallest
	}
	return e.f(sum), slack
}
