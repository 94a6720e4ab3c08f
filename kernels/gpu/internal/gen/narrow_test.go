package gen

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/kerneltest"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/backend"
)

// rounded is bits of the nearest bfloat16, of the two nearest the even one.
func rounded(v float32) uint16 {
	if v != v {
		return 0x7fff
	}
	b := math.Float32bits(v)
	lo := b &^ 0xffff
	switch left := b - lo; { // the next one's bits follow, up to infinity's
	case left > 0x8000, left == 0x8000 && b>>16&1 == 1:
		return uint16(b>>16) + 1
	}
	return uint16(b >> 16)
}

func widened(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// narrowed makes some float32 operands and results of an instruction bfloat16; operands are
// rounded.
func narrowed(r *rand.Rand, i kernels.Instr, in []kerneltest.Tensor) (kernels.Narrow, []kerneltest.Tensor, []kernels.Type) {
	p := []float64{0.3, 0.7, 1}[r.IntN(3)]
	in, n := slices.Clone(in), kernels.Narrow{Of: i}
	types := make([]kernels.Type, len(in))
	for k := range in {
		types[k] = in[k].Type
		if in[k].Dtype == device.Float32 && r.Float64() < p {
			types[k].Dtype = device.BFloat16
			in[k].V = slices.Clone(in[k].V)
			for at, v := range in[k].V {
				in[k].V[at] = float64(widened(rounded(float32(v))))
			}
		}
	}
	if out, err := n.Infer(types); err == nil {
		for _, o := range out {
			n.Outs = append(n.Outs, o.Dtype == device.Float32 && r.Float64() < p)
		}
	}
	return n, in, types
}

// encoded are elements as a type has them.
func encoded(t kernels.Type, v []float64) []byte {
	b := make([]byte, 0, t.Bytes())
	for _, x := range v {
		switch t.Dtype {
		case device.BFloat16:
			b = binary.LittleEndian.AppendUint16(b, rounded(float32(x)))
		case device.Float32:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(x)))
		case device.Float64:
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
		case device.Int32:
			b = binary.LittleEndian.AppendUint32(b, uint32(int32(x)))
		default:
			b = binary.LittleEndian.AppendUint64(b, uint64(int64(x)))
		}
	}
	return b
}

// decoded is encoded backwards.
func decoded(t kernels.Type, b []byte) (v []float64) {
	for size := t.Dtype.Size(); len(b) > 0; b = b[size:] {
		switch t.Dtype {
		case device.BFloat16:
			v = append(v, float64(widened(binary.LittleEndian.Uint16(b))))
		case device.Float32:
			v = append(v, float64(math.Float32frombits(binary.LittleEndian.Uint32(b))))
		case device.Float64:
			v = append(v, math.Float64frombits(binary.LittleEndian.Uint64(b)))
		case device.Int32:
			v = append(v, float64(int32(binary.LittleEndian.Uint32(b))))
		default:
			v = append(v, float64(int64(binary.LittleEndian.Uint64(b))))
		}
	}
	return v
}

// addsUp says whether an instruction adds floats up, which it may do in another order where
// elements lie otherwise.
func addsUp(i kernels.Instr) bool {
	switch i := i.(type) {
	case kernels.Viewed:
		return addsUp(i.Of)
	case kernels.Map:
		return slices.ContainsFunc(i.Outs, func(o kernels.Out) bool { return o.Fold != nil && o.Fold.Fn != kernels.Max })
	case kernels.Reduce:
		return i.Fn != kernels.Max
	case kernels.SumSquares:
		return true
	}
	return false
}

// checkNarrow compares a narrow instruction with the one of float32, of the same numbers, whose
// results are rounded after.
func checkNarrow(t *testing.T, d *device.Accelerator, i kernels.Narrow, in []kerneltest.Tensor, types []kernels.Type) {
	t.Helper()
	wide := make([]kernels.Type, len(in))
	for k := range in {
		wide[k] = in[k].Type
	}
	wideOut, err := i.Of.Infer(wide)
	require.NoError(t, err)
	want, err := kerneltest.RunOn(t, d, i.Of, wideOut, in)
	require.NoError(t, err)
	out, err := i.Infer(types)
	require.NoError(t, err)
	var raw [][]byte
	for k, x := range in {
		raw = append(raw, encoded(types[k], x.V))
	}
	for k, b := range runBytes(t, d, i, types, raw, -1, -1) {
		got := decoded(out[k], b)
		require.Len(t, got, len(want[k].V))
		for at, w := range want[k].V {
			w, g, off := decoded(out[k], encoded(out[k], []float64{w}))[0], got[at], 0.0
			if addsUp(i.Of) {
				off = 4e-6 * (1 + math.Abs(w))
				if out[k].Dtype == device.BFloat16 {
					off += math.Abs(w) / 128
				}
			}
			if !(g == w && math.Signbit(g) == math.Signbit(w) || g != g && w != w || math.Abs(g-w) <= off) {
				require.Failf(t, "wrong", "%v of %v: result %d at %d: got %g, want %g", i, types, k, at, g, w)
			}
		}
	}
}

// runBytes computes results of operands' bytes; result n lies over operand m, where these are not
// −1.
func runBytes(t *testing.T, d *device.Accelerator, i kernels.Instr, types []kernels.Type, in [][]byte, n, m int) (got [][]byte) {
	out, err := i.Infer(types)
	require.NoError(t, err)
	b, err := backend.For(d)
	require.NoError(t, err)
	var bufs, outs []*device.Buffer
	buffer := func(size int, v []byte) *device.Buffer {
		b, err := d.Alloc(size)
		require.NoError(t, err)
		require.NoError(t, d.Upload(b, 0, v))
		bufs = append(bufs, b)
		return b
	}
	for _, v := range in {
		buffer(len(v), v)
	}
	ins := bufs[:len(in):len(in)]
	for k, o := range out {
		if k == n {
			outs = append(outs, ins[m])
		} else {
			outs = append(outs, buffer(o.Bytes(), nil))
		}
	}
	k, err := b.Prepare(i, types)
	require.NoError(t, err)
	require.NoError(t, k.Run(outs, ins))
	for _, o := range outs {
		raw := make([]byte, o.Len())
		require.NoError(t, d.Download(raw, o, 0))
		got = append(got, raw)
	}
	for _, b := range bufs {
		require.NoError(t, b.Release())
	}
	return got
}

func TestNarrowKernelsGiveWhatThoseOfFloat32DoRounded(t *testing.T) {
	for k, family := range families {
		t.Run(family, func(t *testing.T) {
			ran := 0
			for n, like := range []writer{{}, {large: true}, {large: true, wide: true}} {
				d, r := newRig(t, like), rand.New(rand.NewPCG(uint64(k), uint64(n)))
				for range soak.Cases(15) {
					i, in := kerneltest.Case(r, family)
					narrow, in, types := narrowed(r, i, in)
					checkNarrow(t, d, narrow, in, types)
					if slices.Contains(narrow.Outs, true) || slices.ContainsFunc(types, func(t kernels.Type) bool { return t.Dtype == device.BFloat16 }) {
						ran++
					}
				}
			}
			require.Greater(t, ran, 3)
		})
	}
}

// TestElementsAreTakenSideBySideHoweverManyFit has shapes and views of every alignment up to 16
// bytes.
func TestElementsAreTakenSideBySideHoweverManyFit(t *testing.T) {
	r, d := rand.New(rand.NewPCG(11, 11)), newRig(t, writer{large: true})
	seen := map[string]int{}
	for range soak.Cases(150) {
		rows, cols := 1+r.IntN(4), (1+r.IntN(4))<<r.IntN(5)
		row := cols + r.IntN(3)<<r.IntN(4)
		v := &kernels.View{Shape: device.Shape{rows, cols}, Offset: r.IntN(3) << r.IntN(4), Strides: []int{row, 1}}
		m := kernels.Map{Shape: v.Shape, Steps: []kernels.Step{{Op: kernels.Binary{Fn: kernels.Mul}, Args: [2]int{0, 1}}}, Outs: []kernels.Out{{Reg: 2}}}
		if r.IntN(3) == 0 {
			m.Outs = append(m.Outs, kernels.Out{Reg: 2, Fold: &kernels.Reduce{Fn: kernels.Max, Axes: []int{r.IntN(2)}}})
		}
		in := []kerneltest.Tensor{tensor(r, device.Float32, v.Offset+rows*row), tensor(r, device.Float32, [][]int{{}, {cols}, {rows, 1}, {rows, cols}}[r.IntN(4)]...)}
		i, in, types := narrowed(r, kernels.Viewed{Of: m, In: []*kernels.View{v, nil}}, in)
		checkNarrow(t, d, i, in, types)
		out, err := i.Infer(types)
		require.NoError(t, err)
		w := writer{large: true}
		require.NoError(t, w.instr(i, types, out))
		for _, access := range []string{"ld.global.u16", "ld.global.b32", "ld.global.v2.b32", "ld.global.v4.b32", "ld.global.v4.f32", "+16];",
			"st.global.u16", "st.global.b32", "st.global.v2.b32", "st.global.v4.b32", "st.global.v4.f32"} {
			seen[access] += strings.Count(w.Kernels[0].Body, access)
		}
	}
	for access, n := range seen {
		require.Positive(t, n, access)
	}
}

func TestWideningAndNarrowingAreExactToTheBit(t *testing.T) {
	same := func(n int) kernels.Map { return kernels.Map{Shape: device.Shape{n}, Outs: []kernels.Out{{}}} }
	var all []byte
	for b := range 1 << 16 {
		all = binary.LittleEndian.AppendUint16(all, uint16(b))
	}
	few := numbers(rand.New(rand.NewPCG(12, 12)), device.Float32, 4000)
	for b := 0; b < 1<<16; b += 9 { // what lies half way between two, and right beside
		for off := range 3 {
			few = append(few, float64(math.Float32frombits(uint32(b)<<16+0x7fff+uint32(off))))
		}
	}
	few = few[:len(few)/8*8]
	for _, odd := range []int{0, 1, 2, 4} { // so that fewer lanes fit
		for _, like := range []writer{{}, {large: true}} {
			d := newRig(t, like)
			n := 1<<16 - odd
			narrow := []kernels.Type{{Dtype: device.BFloat16, Shape: device.Shape{n}}}
			var want []byte
			for b := range n {
				want = binary.LittleEndian.AppendUint32(want, uint32(b)<<16)
			}
			require.Equal(t, want, runBytes(t, d, kernels.Narrow{Of: same(n)}, narrow, [][]byte{all[:2*n]}, -1, -1)[0])
			n = len(few) - odd
			narrow[0].Shape = device.Shape{n}
			require.Equal(t, encoded(narrow[0], few[:n]),
				runBytes(t, d, kernels.Narrow{Of: same(n), Outs: []bool{true}}, []kernels.Type{float(n)}, [][]byte{encoded(float(n), few[:n])}, -1, -1)[0])
		}
	}
}

func TestMovesOfBFloat16KeepEveryBit(t *testing.T) {
	r, d := rand.New(rand.NewPCG(13, 13)), newRig(t, writer{large: true})
	for _, c := range []struct {
		rows, cols int
		swap       bool
	}{{3, 5, false}, {4, 64, false}, {33, 41, true}, {64, 32, true}, {9, 8, true}} {
		raw := make([]byte, 2*c.rows*c.cols)
		for k := range raw {
			raw[k] = byte(r.Uint32()) | byte(k%2*0x7f) // many NaN
		}
		x := []kernels.Type{{Dtype: device.BFloat16, Shape: device.Shape{c.rows, c.cols}}}
		var i kernels.Instr = kernels.Reshape{Shape: device.Shape{c.cols, c.rows}}
		from := func(at int) int { return at }
		if c.swap {
			i = kernels.Transpose{Perm: []int{1, 0}}
			from = func(at int) int { return at%c.rows*c.cols + at/c.rows }
		}
		for _, rounds := range []bool{false, true} {
			got := runBytes(t, d, kernels.Narrow{Of: i, Outs: []bool{rounds}}, x, [][]byte{raw}, -1, -1)[0]
			for at := range c.rows * c.cols {
				want := binary.LittleEndian.Uint16(raw[2*from(at):])
				if rounds {
					require.Equal(t, want, binary.LittleEndian.Uint16(got[2*at:]))
				} else {
					require.Equal(t, uint32(want)<<16, binary.LittleEndian.Uint32(got[4*at:]))
				}
			}
		}
		numbers := numbers(r, device.Float32, c.rows*c.cols)[:c.rows*c.cols]
		x[0].Dtype = device.Float32
		got := runBytes(t, d, kernels.Narrow{Of: i, Outs: []bool{true}}, x, [][]byte{encoded(x[0], numbers)}, -1, -1)[0]
		for at := range numbers {
			require.Equal(t, rounded(float32(numbers[from(at)])), binary.LittleEndian.Uint16(got[2*at:]))
		}
	}
}

func TestFoldsOfManyElementsOfBFloat16AgreeToo(t *testing.T) {
	r := rand.New(rand.NewPCG(14, 14))
	for _, c := range []struct {
		shape device.Shape
		axes  []int
	}{{device.Shape{20008}, nil}, {device.Shape{3, 5000}, []int{1}}, {device.Shape{1024, 8}, []int{1}}, {device.Shape{3000, 4}, []int{0}},
		{device.Shape{600, 24}, []int{0}}, {device.Shape{30, 10, 32}, []int{0, 2}}, {device.Shape{40, 9, 16}, []int{1}}} {
		t.Run(fmt.Sprint(c.shape, c.axes), func(t *testing.T) {
			m := kernels.Map{Shape: c.shape, Steps: []kernels.Step{{Op: kernels.Unary{Fn: kernels.Neg}}}, Outs: []kernels.Out{{Reg: 1}}}
			for _, fn := range []kernels.ReduceFn{kernels.Max, kernels.Sum, kernels.Mean} {
				m.Outs = append(m.Outs, kernels.Out{Reg: 1, Fold: &kernels.Reduce{Fn: fn, Axes: c.axes}})
			}
			i, in, types := narrowed(r, m, []kerneltest.Tensor{tensor(r, device.Float32, c.shape...)})
			for types[0].Dtype != device.BFloat16 {
				i, in, types = narrowed(r, m, in)
			}
			i.Outs[r.IntN(4)] = true
			checkNarrow(t, newRig(t, writer{large: true}), i, in, types)
		})
	}
}

func TestOnlyWhatRoundsToBFloat16NeedsTensorCores(t *testing.T) {
	same := kernels.Map{Shape: device.Shape{9}, Outs: []kernels.Out{{}}}
	for want, c := range map[string]Case{
		"sm_75": {kernels.Narrow{Of: same}, []kernels.Type{{Dtype: device.BFloat16, Shape: device.Shape{9}}}},
		"sm_80": {kernels.Narrow{Of: same, Outs: []bool{true}}, []kernels.Type{float(9)}},
	} {
		code, err := c.Code()
		require.NoError(t, err)
		plain, err := Case{same, []kernels.Type{float(9)}}.Code()
		require.NoError(t, err)
		text, _ := Module(append(plain.Kernels, code.Kernels...))
		require.Contains(t, text, ".target "+want+"\n")
	}
}

func TestWhatTiesIsCountedExactlyThoughOperandsAreBFloat16(t *testing.T) {
	x, one := kerneltest.New(device.Float32, device.Shape{259}, 3), kerneltest.New(device.Float32, nil, 1) // 259 is no bfloat16
	in := []kerneltest.Tensor{x, kerneltest.New(device.Float32, nil, 3), one}
	var types []kernels.Type
	for _, x := range in {
		types = append(types, kernels.Type{Dtype: device.BFloat16, Shape: x.Shape})
	}
	checkNarrow(t, newRig(t, writer{}), kernels.Narrow{Of: kernels.MaxGrad{}}, in, types)
}
