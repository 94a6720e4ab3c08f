package gpu

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/kerneltest"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/internal/testgpu"
	"github.com/weft-project/weft/kernels"
	backends "github.com/weft-project/weft/kernels/backend"
)

// thinly runs what lower makes of operands in float32, whose one result has n bytes.
func thinly(t *testing.T, d *device.Accelerator, in [][]byte, n int, lower func(b *backend, c *code) error) []byte {
	is, err := backends.For(d)
	require.NoError(t, err)
	b, c := is.(*backend), &code{}
	require.NoError(t, lower(b, c))
	bufs, outs, ins := []*device.Buffer{}, []spot{{0, 0, n}}, []spot{}
	for k, v := range append([][]byte{make([]byte, n)}, in...) {
		buf, err := d.Alloc(len(v))
		require.NoError(t, err)
		require.NoError(t, d.Upload(buf, 0, v))
		bufs = append(bufs, buf)
		if k > 0 {
			ins = append(ins, spot{k, 0, len(v)})
		}
	}
	q := b.build()
	q.appendCode(c, outs, ins, 0)
	run, err := q.done()
	require.NoError(t, err)
	require.NoError(t, run.run(bufs))
	got := make([]byte, n)
	require.NoError(t, d.Download(got, bufs[0], 0))
	for _, buf := range bufs {
		require.NoError(t, buf.Release())
	}
	return got
}

// checkThin compares the results of a product in bfloat16 with those in float32 that are rounded
// after, bit by bit: the sums are the same.
func checkThin(t *testing.T, d *device.Accelerator, i kernels.Instr, in []kerneltest.Tensor) {
	t.Helper()
	of, views := i, []*kernels.View(nil)
	if v, ok := i.(kernels.Viewed); ok {
		of, views = v.Of, v.In
	}
	var raw [][]byte
	var types []kernels.Type
	for _, x := range in {
		raw, types = append(raw, bytesOf(x)), append(types, x.Type)
	}
	out, err := i.Infer(types)
	require.NoError(t, err)
	lower := func(thin bool) func(b *backend, c *code) error {
		return func(b *backend, c *code) error {
			p, err := b.productOf(c, of.(kernels.MatMul), types, views, out[0].Shape, outArg(0))
			require.NoError(t, err)
			p.thin = thin
			return b.multiply(c, p)
		}
	}
	n := out[0].Shape.Elems()
	want := ptxtest.Halves(device.As[float32](thinly(t, d, raw, 4*n, lower(false))))
	got := append([]byte(nil), thinly(t, d, raw, 2*n, lower(true))...)
	if testgpu.Real() { // its library adds up otherwise for each type of results
		wide := func(b []byte, k int) float64 {
			return float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(b[2*k:])) << 16))
		}
		for k := range n {
			require.InDelta(t, wide(want, k), wide(got, k), 1e-2*(1+math.Abs(wide(want, k))), "%v of %v at %d", i, types, k)
		}
		return
	}
	require.Equal(t, want, got, "%v of %v", i, types)
}

func bytesOf(x kerneltest.Tensor) []byte {
	v := make([]float32, len(x.V))
	for k := range v {
		v[k] = float32(x.V[k])
	}
	return device.Bytes(v)
}

func TestThinProductsAreThoseOfFloat32Rounded(t *testing.T) {
	for name, driver := range libraries(t) {
		d := brief(t, driver)
		for _, family := range []string{"MatMul", "ViewedMatMul"} {
			t.Run(name+" "+family, func(t *testing.T) {
				r, ran := rand.New(rand.NewPCG(16, 1)), 0
				for range soak.Cases(30) {
					if i, in := kerneltest.Case(r, family); in[0].Dtype == device.Float32 {
						checkThin(t, d, i, in)
						ran++
					}
				}
				require.Positive(t, ran)
			})
		}
	}
}

func TestThinProductsOfManyTilesAndOfNoTermsAreRounded(t *testing.T) {
	d := brief(t, tensor(t))
	r := rand.New(rand.NewPCG(16, 2))
	for n, x := range [][3]int{{130, 8, 40}, {129, 131, 33}, {7, 140, 66}, {3, 5, 4200}, {3, 6, 4096}, {4, 5, 0}} { // the terms of some are shared out
		i := kernels.MatMul{TransA: n&1 != 0, TransB: n&2 != 0}
		a, b := device.Shape{x[0], x[2]}, device.Shape{x[2], x[1]}
		if i.TransA {
			a[0], a[1] = a[1], a[0]
		}
		if i.TransB {
			b[0], b[1] = b[1], b[0]
		}
		checkThin(t, d, i, []kerneltest.Tensor{drawn(r, device.Float32, a...), drawn(r, device.Float32, b...)})
	}
}

func TestABiasOfAThinProductIsBFloat16(t *testing.T) {
	l := ptxtest.NewLibrary(t, ptx.Config{})
	d := brief(t, l)
	r := rand.New(rand.NewPCG(16, 3))
	a, b, bias := drawn(r, device.Float32, 6, 5), drawn(r, device.Float32, 5, 7), rounded([]kerneltest.Tensor{drawn(r, device.Float32, 7)}, 16)[0]
	for _, kind := range []cuda.Epilogue{cuda.None, cuda.Bias, cuda.ReLU, cuda.ReLUBias} {
		lower := func(thin bool) func(b *backend, c *code) error {
			return func(on *backend, c *code) error {
				p, err := on.productOf(c, kernels.MatMul{}, []kernels.Type{a.Type, b.Type}, nil, device.Shape{6, 7}, outArg(0))
				require.NoError(t, err)
				p.thin = thin
				p, err = on.narrowed(c, p)
				require.NoError(t, err)
				done, err := on.byLibrary(c, p, epilogue{kind: kind, bias: inArg(2)})
				require.True(t, done)
				return err
			}
		}
		want := thinly(t, d, [][]byte{bytesOf(a), bytesOf(b), bytesOf(bias)}, 4*42, lower(false))
		got := thinly(t, d, [][]byte{bytesOf(a), bytesOf(b), ptxtest.Halves(device.As[float32](bytesOf(bias)))}, 2*42, lower(true))
		require.Equal(t, ptxtest.Halves(device.As[float32](want)), got, kind)
	}
	require.Equal(t, map[cuda.Epilogue]int{cuda.None: 2, cuda.Bias: 2, cuda.ReLU: 2, cuda.ReLUBias: 2}, l.Ran)
}
