package gpu

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/cudatest"
	"github.com/weft-project/weft/internal/kerneltest"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/kernels"
	backends "github.com/weft-project/weft/kernels/backend"
)

// library is a driver with a library for products, which are computed on the host by their
// definition.
type library struct {
	*ptx.Machine
	t     *testing.T
	ran   map[cuda.Epilogue]int
	added int // products that were added to something
	lacks func(cuda.ProductSpec) bool
	err   error // what it lacks fails with; nil: cuda.ErrNoProduct
	space int   // bytes of a workspace; 0: 512
}

type hostProduct struct {
	cuda.ProductSpec
	space int
}

func (hostProduct) Name() string     { return "product" }
func (p hostProduct) Workspace() int { return p.space }

func (l *library) Product(s cuda.ProductSpec) (cuda.Product, error) {
	if l.lacks != nil && l.lacks(s) {
		return nil, cmp.Or(l.err, cuda.ErrNoProduct)
	}
	s, err := s.Filled()
	return hostProduct{s, cmp.Or(l.space, 512)}, err
}

func (l *library) Stream() (cuda.Stream, error) {
	s, err := l.Machine.Stream()
	return &libraryStream{s, l}, err
}

type libraryStream struct {
	cuda.Stream
	of *library
}

func (s *libraryStream) Capture(func() error) (cuda.Graph, error) {
	return nil, errors.New("products on the host cannot be recorded")
}

func (s *libraryStream) Run(l *cuda.List) error {
	for k, x := range l.Launches {
		p, ok := x.Func.(hostProduct)
		if !ok {
			if err := s.Stream.Run(&cuda.List{Launches: l.Launches[k : k+1], Args: l.Args}); err != nil {
				return err
			}
			continue
		}
		var at [7]uintptr
		for n := range at {
			at[n] = uintptr(binary.LittleEndian.Uint64(l.Args[x.Off+8*n:]))
			require.Zero(s.of.t, at[n]%uintptr(p.Align), "%+v", p)
		}
		require.NotZero(s.of.t, at[6], "it has no workspace")
		s.of.ran[p.Epilogue]++
		if p.Accumulate {
			s.of.added++
		}
		switch p.In {
		case cuda.F64:
			run(s, p.ProductSpec, at, fetch[float64])
		case cuda.BF16:
			run(s, p.ProductSpec, at, fetchNarrow[float32])
		case cuda.E4M3:
			run(s, p.ProductSpec, at, func(s *libraryStream, from uintptr, _ int) []float64 {
				if from == at[0] {
					return fetchScaled(s, from, p.M, p.K, p.ScaleA)
				}
				return fetchScaled(s, from, p.N, p.K, p.ScaleB)
			})
		default:
			run(s, p.ProductSpec, at, func(s *libraryStream, at uintptr, n int) []float32 {
				v := fetch[float32](s, at, n)
				for k := range v {
					if p.Arithmetic == cuda.TF32 {
						v[k] = float32(shortened(float64(v[k]), 13))
					}
				}
				return v
			})
		}
	}
	return nil
}

// shortened rounds a float32 to what remains of it without some bits, to the even one of two.
func shortened(v float64, bits int) float64 {
	u := math.Float32bits(float32(v))
	return float64(math.Float32frombits((u + 1<<(bits-1) - 1 + u>>bits&1) &^ (1<<bits - 1)))
}

// run computes a product of matrices at addresses of a, b, c, d and the bias.
func run[T device.Float](s *libraryStream, p cuda.ProductSpec, at [7]uintptr, factors func(s *libraryStream, at uintptr, n int) []T) {
	size := func(rows, cols, ld, batch int) int { return (p.Batch-1)*batch + (rows-1)*ld + cols }
	ra, ca, rb, cb := p.M, p.K, p.K, p.N
	if p.TransA {
		ra, ca = ca, ra
	}
	if p.TransB {
		rb, cb = cb, rb
	}
	a, b := factors(s, at[0], size(ra, ca, p.LDA, p.StrideA)), factors(s, at[1], size(rb, cb, p.LDB, p.StrideB))
	results := fetch[T]
	switch {
	case p.Out == cuda.BF16:
		results = fetchNarrow[T]
	case p.Out == cuda.F32:
		results = func(s *libraryStream, at uintptr, n int) []T {
			v := make([]T, n)
			for k, x := range fetch[float32](s, at, n) {
				v[k] = T(x)
			}
			return v
		}
	}
	d := results(s, at[3], size(p.M, p.N, p.LDD, p.StrideD))
	var c, bias []T
	if p.Accumulate {
		c = results(s, at[2], size(p.M, p.N, p.LDC, p.StrideC))
	}
	if p.Epilogue.HasBias() {
		bias = results(s, at[4], p.N)
	}
	for z := range p.Batch {
		for i := range p.M {
			for j := range p.N {
				var sum float64
				for k := range p.K {
					x, y := i*p.LDA+k, k*p.LDB+j
					if p.TransA {
						x = k*p.LDA + i
					}
					if p.TransB {
						y = j*p.LDB + k
					}
					sum += float64(a[z*p.StrideA+x]) * float64(b[z*p.StrideB+y])
				}
				if c != nil {
					sum += float64(c[z*p.StrideC+i*p.LDC+j])
				}
				if bias != nil {
					sum += float64(bias[j])
				}
				if p.Epilogue == cuda.ReLU || p.Epilogue == cuda.ReLUBias {
					sum = max(sum, 0)
				}
				d[z*p.StrideD+i*p.LDD+j] = T(sum)
			}
		}
	}
	made := device.Bytes(d)
	switch {
	case p.Out == cuda.BF16:
		made = halves(d)
	case p.Out == cuda.F32:
		singles := make([]float32, len(d))
		for k, x := range d {
			singles[k] = float32(x)
		}
		made = device.Bytes(singles)
	}
	raw := s.pinned(len(made))
	copy(raw, made)
	require.NoError(s.of.t, s.CopyIn(at[3], raw))
	require.NoError(s.of.t, s.Sync())
	require.NoError(s.of.t, s.of.Unpin(raw))
}

func (s *libraryStream) pinned(n int) []byte {
	raw, err := s.of.Pin(n)
	require.NoError(s.of.t, err)
	return raw
}

func fetch[T device.Number](s *libraryStream, at uintptr, n int) []T {
	v := make([]T, n)
	s.copyOut(device.Bytes(v), at)
	return v
}

// fetchNarrow is fetch of what lies in bfloat16.
func fetchNarrow[T device.Float](s *libraryStream, at uintptr, n int) []T {
	v, raw := make([]T, n), make([]byte, 2*n)
	s.copyOut(raw, at)
	for k := range v {
		v[k] = T(math.Float32frombits(uint32(binary.LittleEndian.Uint16(raw[2*k:])) << 16))
	}
	return v
}

// fetchScaled is fetch of rows in e4m3, times their scales, which lie some bytes on.
func fetchScaled(s *libraryStream, at uintptr, rows, terms, scales int) []float64 {
	raw := make([]byte, rows*terms)
	s.copyOut(raw, at)
	v, by := cudatest.Decode(cuda.E4M3, raw), fetch[float32](s, at+uintptr(scales), cuda.Scales(rows, terms))
	for k := range v {
		v[k] *= float64(by[k%terms/cuda.ScaledTerms*rows+k/terms])
	}
	return v
}

// halves are numbers rounded to bfloat16.
func halves[T device.Float](v []T) (raw []byte) {
	for _, x := range v {
		raw = binary.LittleEndian.AppendUint16(raw, uint16(math.Float32bits(float32(shortened(float64(x), 16)))>>16))
	}
	return raw
}

func (s *libraryStream) copyOut(to []byte, at uintptr) {
	raw := s.pinned(len(to))
	require.NoError(s.of.t, s.CopyOut(raw, at))
	require.NoError(s.of.t, s.Sync())
	copy(to, raw)
	require.NoError(s.of.t, s.of.Unpin(raw))
}

func TestProductsGoToTheDriversLibrary(t *testing.T) {
	for name, driver := range libraries(t) {
		d, made, cases := on(t, driver), map[string]int64{}, 40
		if name == "kernels" {
			cases = 3
		}
		for _, family := range productFamilies {
			r := rand.New(rand.NewPCG(5, 5))
			for range cases {
				i, in := kerneltest.Case(r, family)
				kerneltest.Check(t, d, i, in...)
			}
		}
		for _, w := range backends.Ways(d) {
			t.Logf("%s: %+v", name, w)
			made[w.By] += w.Times
		}
		switch {
		case name == "kernels":
			require.Zero(t, made[byLibrary])
		case name == "library":
			require.Greater(t, made[byLibrary], int64(200))
		case made[byLibrary] == 0: // of a real GPU
			_, err := driver.(cuda.Multiplier).Product(cuda.ProductSpec{M: 8, N: 8, K: 8})
			require.ErrorIs(t, err, cuda.ErrNoLibrary, "there is one, and no product went there")
			t.Log(err)
		}
	}
}

func TestABiasAndAReLUAreTheLibrarysWhereNothingElseIs(t *testing.T) {
	l := &library{Machine: ptx.New(ptx.Config{}), t: t, ran: map[cuda.Epilogue]int{}}
	d := on(t, l)
	r := rand.New(rand.NewPCG(5, 6))
	add, relu := kernels.Step{Op: kernels.Binary{Fn: kernels.Add}, Args: [2]int{0, 1}}, func(reg int) kernels.Step {
		return kernels.Step{Op: kernels.Unary{Fn: kernels.Relu}, Args: [2]int{reg}}
	}
	swapped := add
	swapped.Args = [2]int{1, 0}
	a, b, bias := drawn(r, device.Float32, 6, 5), drawn(r, device.Float32, 5, 7), drawn(r, device.Float32, 7)
	for _, c := range []struct {
		steps []kernels.Step
		out   int
		in    []kerneltest.Tensor
		want  cuda.Epilogue
	}{
		{[]kernels.Step{add}, 2, []kerneltest.Tensor{bias}, cuda.Bias},
		{[]kernels.Step{swapped, relu(2)}, 3, []kerneltest.Tensor{bias}, cuda.ReLUBias},
		{[]kernels.Step{relu(0)}, 1, nil, cuda.ReLU},
		{[]kernels.Step{add, relu(2)}, 2, []kerneltest.Tensor{bias}, cuda.None},                  // the result is before the ReLU
		{[]kernels.Step{add, relu(0)}, 3, []kerneltest.Tensor{bias}, cuda.None},                  // the ReLU is of the product
		{[]kernels.Step{relu(0), relu(1)}, 2, nil, cuda.None},                                    // two
		{[]kernels.Step{add}, 2, []kerneltest.Tensor{drawn(r, device.Float32, 6, 1)}, cuda.None}, // of rows
		{[]kernels.Step{relu(1)}, 2, []kerneltest.Tensor{bias}, cuda.None},                       // without the product
	} {
		clear(l.ran)
		then := kernels.Map{Shape: device.Shape{6, 7}, Steps: c.steps, Outs: []kernels.Out{{Reg: c.out}}}
		kerneltest.Check(t, d, kernels.MatMulThen{Then: then}, append([]kerneltest.Tensor{a, b}, c.in...)...)
		require.Equal(t, map[cuda.Epilogue]int{c.want: 2}, l.ran, "%v", then)
	}
	require.Zero(t, l.added)
}

func TestAProductIsAddedToASumByTheLibraryWhereNothingElseIsDone(t *testing.T) {
	l := &library{Machine: ptx.New(ptx.Config{}), t: t, ran: map[cuda.Epilogue]int{}}
	d := on(t, l)
	r := rand.New(rand.NewPCG(5, 8))
	step := func(x, y int) kernels.Step {
		return kernels.Step{Op: kernels.Binary{Fn: kernels.Add}, Args: [2]int{x, y}}
	}
	for _, c := range []struct {
		a, b, sum, out []int
		steps          []kernels.Step
		calls          int // of the library that add, for each time
	}{
		{[]int{6, 5}, []int{5, 7}, []int{6, 7}, []int{6, 7}, []kernels.Step{step(0, 1)}, 1},
		{[]int{6, 5}, []int{5, 7}, []int{6, 7}, []int{6, 7}, []kernels.Step{step(1, 0)}, 1},
		{[]int{2, 6, 5}, []int{5, 7}, []int{2, 6, 7}, []int{2, 6, 7}, []kernels.Step{step(0, 1)}, 1},
		{[]int{2, 1, 6, 5}, []int{3, 5, 7}, []int{2, 3, 6, 7}, []int{2, 3, 6, 7}, []kernels.Step{step(0, 1)}, 2},
		{[]int{6, 5}, []int{5, 7}, []int{6, 7}, []int{6, 7}, []kernels.Step{step(0, 0)}, 0},             // twice the product
		{[]int{6, 5}, []int{5, 7}, []int{6, 7}, []int{6, 7}, []kernels.Step{step(1, 1)}, 0},             // without it
		{[]int{6, 5}, []int{5, 7}, []int{6, 7}, []int{6, 7}, []kernels.Step{step(0, 1), step(2, 0)}, 0}, // and once more
		{[]int{2, 6, 5}, []int{5, 7}, []int{6, 7}, []int{2, 6, 7}, []kernels.Step{step(0, 1)}, 0},       // the same for all
		{[]int{6, 0}, []int{0, 7}, []int{6, 7}, []int{6, 7}, []kernels.Step{step(0, 1)}, 0},             // no product
	} {
		for _, dtype := range []device.Dtype{device.Float32, device.Float64} {
			l.added = 0
			then := kernels.Map{Shape: c.out, Steps: c.steps, Outs: []kernels.Out{{Reg: 1 + len(c.steps)}}}
			i, in := kernels.MatMulThen{Then: then}, []kerneltest.Tensor{drawn(r, dtype, c.a...), drawn(r, dtype, c.b...), drawn(r, dtype, c.sum...)}
			kerneltest.Check(t, d, i, in...)
			require.Equal(t, 2*c.calls, l.added, "%v", i)
		}
	}
}

func TestAProductThatTheLibraryLacksIsAKernels(t *testing.T) {
	l := &library{Machine: ptx.New(ptx.Config{}), t: t, ran: map[cuda.Epilogue]int{}}
	l.lacks = func(s cuda.ProductSpec) bool { return s.Epilogue != cuda.None || s.M > 4 }
	d := on(t, l)
	r := rand.New(rand.NewPCG(5, 7))
	bias := drawn(r, device.Float32, 7)
	then := kernels.Map{Shape: device.Shape{6, 7}, Steps: []kernels.Step{{Op: kernels.Binary{Fn: kernels.Add}, Args: [2]int{0, 1}}}, Outs: []kernels.Out{{Reg: 2}}}
	kerneltest.Check(t, d, kernels.MatMulThen{Then: then}, drawn(r, device.Float32, 6, 5), drawn(r, device.Float32, 5, 7), bias)
	kerneltest.Check(t, d, kernels.MatMul{}, drawn(r, device.Float32, 6, 5), drawn(r, device.Float32, 5, 7))
	require.Empty(t, l.ran)
}
