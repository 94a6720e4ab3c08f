package ptxtest

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/cudatest"
	"github.com/weft-project/weft/internal/ptx"
)

// NewLibrary is a library that lacks nothing.
func NewLibrary(t testing.TB, c ptx.Config) *Library {
	return &Library{Machine: New(c), T: t, Ran: map[cuda.Epilogue]int{}}
}

// Library is a machine with a library for products, which are computed on the host by their
// definition. A product fails the test where its addresses are not what was promised.
type Library struct {
	*ptx.Machine
	T     testing.TB
	Ran   map[cuda.Epilogue]int // how many products
	Added int                   // how many of them to what was there
	Lacks func(cuda.ProductSpec) bool
	Err   error // what it lacks fails with; nil: cuda.ErrNoProduct
	Space int   // bytes of a workspace; 0: 512
}

type hostProduct struct {
	cuda.ProductSpec
	space int
}

func (hostProduct) Name() string     { return "product" }
func (p hostProduct) Workspace() int { return p.space }

// Product is [cuda.Multiplier]'s.
func (l *Library) Product(s cuda.ProductSpec) (cuda.Product, error) {
	if l.Lacks != nil && l.Lacks(s) {
		return nil, cmp.Or(l.Err, cuda.ErrNoProduct)
	}
	s, err := s.Filled()
	return hostProduct{s, cmp.Or(l.Space, 512)}, err
}

// Stream is [cuda.Driver]'s.
func (l *Library) Stream() (cuda.Stream, error) {
	s, err := l.Machine.Stream()
	return &libraryStream{s, l}, err
}

type libraryStream struct {
	cuda.Stream
	of *Library
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
			require.Zero(s.of.T, at[n]%uintptr(p.Align), "%+v", p)
		}
		require.NotZero(s.of.T, at[6], "it has no workspace")
		s.of.Ran[p.Epilogue]++
		if p.Accumulate {
			s.of.Added++
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
						v[k] = float32(Shortened(float64(v[k]), 13))
					}
				}
				return v
			})
		}
	}
	return nil
}

// Shortened rounds a float32 to what remains of it without some bits, to the even one of two.
func Shortened(v float64, bits int) float64 {
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
		made = Halves(d)
	case p.Out == cuda.F32:
		singles := make([]float32, len(d))
		for k, x := range d {
			singles[k] = float32(x)
		}
		made = device.Bytes(singles)
	}
	raw := s.pinned(len(made))
	copy(raw, made)
	require.NoError(s.of.T, s.CopyIn(at[3], raw))
	require.NoError(s.of.T, s.Sync())
	require.NoError(s.of.T, s.of.Unpin(raw))
}

func (s *libraryStream) pinned(n int) []byte {
	raw, err := s.of.Pin(n)
	require.NoError(s.of.T, err)
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

// Halves are numbers rounded to bfloat16.
func Halves[T device.Float](v []T) (raw []byte) {
	for _, x := range v {
		raw = binary.LittleEndian.AppendUint16(raw, uint16(math.Float32bits(float32(Shortened(float64(x), 16)))>>16))
	}
	return raw
}

func (s *libraryStream) copyOut(to []byte, at uintptr) {
	raw := s.pinned(len(to))
	require.NoError(s.of.T, s.CopyOut(raw, at))
	require.NoError(s.of.T, s.Sync())
	copy(to, raw)
	require.NoError(s.of.T, s.of.Unpin(raw))
}
