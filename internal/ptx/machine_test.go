package ptx

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/ptx/simt"
)

// bench is a machine with a stream and one of the modules in testdata.
type rig struct {
	t   testing.TB
	m   *Machine
	s   cuda.Stream
	mod cuda.Module
}

func newRig(t testing.TB, c Config, text string) *rig {
	t.Helper()
	m := New(c)
	s, err := m.Stream()
	require.NoError(t, err)
	mod, err := m.Load([]byte(text))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return &rig{t, m, s, mod}
}

func bytesOf[T simt.Scalar](v []T) []byte {
	if len(v) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), len(v)*int(unsafe.Sizeof(v[0])))
}

// up brings values to the machine.
func up[T simt.Scalar](r *rig, v []T) uintptr {
	r.t.Helper()
	raw := bytesOf(v)
	at, err := r.m.Alloc(max(len(raw), 1))
	require.NoError(r.t, err)
	pin, err := r.m.Pin(max(len(raw), 1))
	require.NoError(r.t, err)
	copy(pin, raw)
	require.NoError(r.t, r.s.CopyIn(at, pin[:len(raw)]))
	require.NoError(r.t, r.s.Sync())
	require.NoError(r.t, r.m.Unpin(pin))
	return at
}

// down brings values back.
func down[T simt.Scalar](r *rig, at uintptr, n int) []T {
	r.t.Helper()
	out := make([]T, n)
	raw := bytesOf(out)
	pin, err := r.m.Pin(max(len(raw), 1))
	require.NoError(r.t, err)
	require.NoError(r.t, r.s.CopyOut(pin[:len(raw)], at))
	require.NoError(r.t, r.s.Sync())
	copy(raw, pin)
	require.NoError(r.t, r.m.Unpin(pin))
	return out
}

// launch runs a kernel: arguments are numbers of 4 or 8 bytes.
func (r *rig) launch(name string, grid, block int, shared int, args ...any) error {
	return r.launch3(name, [3]uint32{uint32(grid), 1, 1}, [3]uint32{uint32(block), 1, 1}, shared, args...)
}

func (r *rig) launch3(name string, grid, block [3]uint32, shared int, args ...any) error {
	r.t.Helper()
	f, err := r.mod.Func(name, shared)
	require.NoError(r.t, err)
	var l cuda.List
	l.Add(f, grid, block, uint32(shared))
	for _, a := range args {
		switch v := a.(type) {
		case int:
			l.U32(uint32(v))
		case float32:
			l.U32(math.Float32bits(v))
		case int64:
			l.U64(uint64(v))
		case uintptr:
			l.Addr(v)
		default:
			r.t.Fatalf("argument of type %T", a)
		}
	}
	if err := r.s.Run(&l); err != nil {
		return err
	}
	return r.s.Sync()
}

func normal(n int, scale float64) []float32 {
	out := make([]float32, n)
	for k := range out {
		out[k] = float32(rand.NormFloat64() * scale)
	}
	return out
}

func near(t *testing.T, want []float64, got []float32, tol float64) {
	t.Helper()
	for k := range want {
		if d := math.Abs(float64(got[k])-want[k]) / (1 + math.Abs(want[k])); !(d <= tol) {
			t.Fatalf("element %d: %v, expected %v", k, got[k], want[k])
		}
	}
}

func TestKernelsOfTheCompilerComputeWhatTheyShould(t *testing.T) {
	r := newRig(t, Config{}, texts(t)["basic"])
	const rows, cols = 7, 300
	x, g, b := normal(rows*cols, 2), normal(cols, 1), normal(cols, 1)
	px, pg, pb, py := up(r, x), up(r, g), up(r, b), up(r, make([]float32, rows*cols))

	sum := make([]float64, rows*cols)
	for k := range sum {
		sum[k] = float64(x[k] + x[k])
	}
	require.NoError(t, r.launch("vec_add", 9, 256, 0, px, px, py, int64(rows*cols)))
	near(t, sum, down[float32](r, py, rows*cols), 0)

	want := make([]float64, rows*cols)
	for k := range want {
		v := float64(x[k]) + float64(b[k%cols])
		want[k] = 0.5 * v * (1 + math.Tanh(0.7978845608028654*(v+0.044715*v*v*v)))
	}
	require.NoError(t, r.launch("bias_gelu", 3, 128, 0, px, pb, py, rows*cols, cols))
	near(t, want, down[float32](r, py, rows*cols), 2e-6)

	norm := make([]float64, rows*cols)
	for row := range rows {
		mu, q, s := 0.0, 0.0, 0.0
		in, soft := x[row*cols:][:cols], want[row*cols:][:cols]
		for c, v := range in {
			mu += float64(v) / cols
			soft[c] = math.Exp(float64(v))
			s += soft[c]
		}
		for _, v := range in {
			q += (float64(v) - mu) * (float64(v) - mu) / cols
		}
		for c, v := range in {
			norm[row*cols+c] = (float64(v)-mu)/math.Sqrt(q+1e-5)*float64(g[c]) + float64(b[c])
			soft[c] /= s
		}
	}
	require.NoError(t, r.launch("softmax", rows, 96, 0, px, py, cols))
	near(t, want, down[float32](r, py, rows*cols), 2e-6)
	require.NoError(t, r.launch("layernorm", rows, 128, 4*cols, px, pg, pb, py, float32(1e-5), cols))
	near(t, norm, down[float32](r, py, rows*cols), 4e-6)

	total := 0.0
	for _, v := range x {
		total += float64(v)
	}
	part, ticket, out := up(r, make([]float32, 8)), up(r, []uint32{0}), up(r, []float32{0})
	require.NoError(t, r.launch("sum_ticket", 8, 64, 0, px, part, ticket, out, int64(rows*cols)))
	near(t, []float64{total}, down[float32](r, out, 1), 1e-5)

	const n, k, m = 33, 40, 20
	product := make([]float64, n*m)
	for i := range n {
		for j := range m {
			for l := range k {
				product[i*m+j] += float64(x[i*k+l]) * float64(x[l*m+j])
			}
		}
	}
	require.NoError(t, r.launch3("matmul", [3]uint32{2, 3, 1}, [3]uint32{16, 16, 1}, 0, px, px, py, n, k, m))
	near(t, product, down[float32](r, py, n*m), 1e-5)
}
