//go:build !race

package autodiff

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
)

// Under the race detector sync.Pool drops things at random, so that nothing can be said there.

// mallocs is how many allocations a call of f costs, as a fraction, and how many bytes they are.
func mallocs(f func()) (n float64, bytes int64) {
	r := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			f()
		}
	})
	return float64(r.MemAllocs) / float64(r.N), r.AllocedBytesPerOp()
}

func TestACallOnSmallTensorsAllocatesItsResultAndNothingElse(t *testing.T) {
	x, y := Rand(3, 3), Rand(3, 3)
	w, bias := Rand(3, 3).RequireGrad(), Rand(3).RequireGrad()
	a := NewArena("pass")
	defer a.Free()
	mine := Rand(3, 3)
	require.NoError(t, a.Adopt(mine))
	for name, f := range map[string]func() *Tensor{
		"add":                func() *Tensor { return Add(x, y) },
		"add taped":          func() *Tensor { return Add(x, w) },
		"add in an arena":    func() *Tensor { return Add(mine, w) },
		"mul taped":          func() *Tensor { return Mul(w, w) },
		"tanh taped":         func() *Tensor { return Tanh(w) },
		"scale taped":        func() *Tensor { return Scale(w, 0.5) },
		"sum taped":          func() *Tensor { return Sum(w, 0) },
		"transpose taped":    func() *Tensor { return Transpose(w) },
		"reshape taped":      func() *Tensor { return Reshape(w, 9) },
		"product taped":      func() *Tensor { return MatMul(x, w) },
		"linear taped":       func() *Tensor { return Linear(x, w, bias) },
		"linear, an arena's": func() *Tensor { return Linear(mine, w, bias) },
	} {
		require.NoError(t, f().Err(), name)
		require.LessOrEqual(t, testing.AllocsPerRun(200, func() { f() }), 1., name)
	}
	n, bytes := mallocs(func() { Add(x, w) })
	require.Less(t, n, 1.01)
	require.LessOrEqual(t, bytes, int64(unsafe.Sizeof(smallCall{})))
}

func TestASmallCallAllocatesAlignedMemory(t *testing.T) {
	x := Rand(3, 3)
	w := Rand(3, 3).RequireGrad()
	for range 1000 { // or else its value would have a buffer of its own, from time to time
		for _, y := range []*Tensor{Add(x, x), Add(x, w)} {
			raw, err := y.buf.Host()
			require.NoError(t, err)
			require.Zero(t, uintptr(unsafe.Pointer(&raw[0]))%64)
			at := uintptr(unsafe.Pointer(y)) - uintptr(unsafe.Pointer(&raw[0]))
			require.Equal(t, unsafe.Offsetof(smallCall{}.t), at, "they lie together")
		}
	}
}

func TestTheBackwardOfAChainAllocatesNothingPerOp(t *testing.T) {
	w, y, one := Rand(3, 3).RequireGrad(), Rand(3, 3), Ones(device.Float32, 3, 3)
	cost := func(ops int, next func(z *Tensor) *Tensor) float64 {
		z := w
		for range ops {
			z = next(z)
		}
		run := func() {
			_, err := BackwardWith(Options{RetainGraph: true, Grads: []*Tensor{one}}, z)
			require.NoError(t, err)
		}
		run()
		return testing.AllocsPerRun(50, run)
	}
	for name, next := range map[string]func(z *Tensor) *Tensor{
		"mul":   func(z *Tensor) *Tensor { return Mul(z, y) },
		"add":   func(z *Tensor) *Tensor { return Add(z, y) },
		"tanh":  Tanh,
		"scale": func(z *Tensor) *Tensor { return Scale(z, 0.5) },
	} {
		require.LessOrEqual(t, cost(200, next), cost(100, next)+2, name)
		require.LessOrEqual(t, cost(100, next), 12., name)
	}
	fork := func(z *Tensor) *Tensor { return Add(z, Scale(z, 0.5)) }
	require.LessOrEqual(t, cost(100, fork), 220., "two gradients at a time are two tensors")
}
