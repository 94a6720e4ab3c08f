package gpu

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/cudatest"
	"github.com/weft-project/weft/internal/kerneltest"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/internal/testgpu"
	"github.com/weft-project/weft/kernels"
	backends "github.com/weft-project/weft/kernels/backend"
)

// eights are the numbers of e4m3 from 0 on, by their codes.
var eights = func() []float64 {
	raw := make([]byte, 127)
	for k := range raw {
		raw[k] = byte(k)
	}
	return cudatest.Decode(cuda.E4M3, raw)
}()

// quantized is a block of numbers in e4m3, and its scale, by their definition.
func quantized(v []float64) (codes []byte, scale float64) {
	most := 0.0
	for _, x := range v {
		if !math.IsNaN(x) && !math.IsInf(x, 0) {
			most = max(most, math.Abs(x))
		}
	}
	if scale = 1; most > 0 {
		for scale = math.Ldexp(1, -126); most/scale > 448; scale *= 2 {
		}
	}
	for _, x := range v {
		size, code := math.Abs(x)/scale, byte(0x7f)
		if size <= 448 {
			at, _ := slices.BinarySearch(eights, size) // the first that is no smaller
			if at > 0 {
				below, above := size-eights[at-1], eights[at]-size
				if below < above || below == above && at%2 == 1 {
					at--
				}
			}
			code = byte(at)
		}
		if math.Signbit(x) {
			code |= 0x80
		}
		codes = append(codes, code)
	}
	return codes, scale
}

// strange are numbers of all sizes, and what are none.
func strange(r *rand.Rand, kind int) float64 {
	x := r.NormFloat64()
	switch kind {
	case 1: // of many sizes
		x = math.Ldexp(x, r.IntN(60)-30)
	case 2: // as small as can be
		x = math.Ldexp(float64(r.IntN(64)), -149)
	case 3:
		x = math.Ldexp(x, 126)
	case 4:
		x = 0
	case 5: // numbers in the middle of two of e4m3, and their neighbours
		at := r.IntN(len(eights) - 1)
		x = (eights[at] + eights[at+1]) / 2 * (1 + float64(r.IntN(3)-1)/(1<<20))
	case 6:
		x = [...]float64{math.NaN(), math.Inf(1), math.Inf(-1), 448, math.Copysign(0, -1), x}[r.IntN(6)]
	}
	if r.IntN(2) == 0 {
		x = -x
	}
	return x
}

func TestFactorsAreQuantizedBitByBitAsTheirDefinitionSays(t *testing.T) {
	d := testgpu.Open(t, ptx.Config{Races: true})
	s, err := d.Stream()
	require.NoError(t, err)
	m, err := d.Load(fp8PTX(t))
	require.NoError(t, err)
	seen := map[byte]bool{}
	for n := range soak.Cases(24) {
		r := rand.New(rand.NewPCG(8, uint64(n)))
		rows, terms, across, brief := 16*(1+r.IntN(6)), 16*(1+r.IntN(20)), n%2 == 1, n/2%2 == 1
		stored, ld := rows, terms+16*r.IntN(2)
		name := "along_"
		if across {
			stored, ld, name = terms, rows+16*r.IntN(2), "across_"
		}
		v := make([]float64, stored*ld)
		kinds := make([]int, rows*terms/16+stored*ld)
		for k := range kinds {
			kinds[k] = r.IntN(7)
		}
		at := func(row, term int) int {
			if across {
				return term*ld + row
			}
			return row*ld + term
		}
		for row := range rows {
			for term := range terms {
				x := strange(r, kinds[row*((terms+127)/128)+term/128])
				if brief {
					x = ptxtest.Shortened(x, 16)
				}
				v[at(row, term)] = float64(float32(x))
			}
		}
		elem := map[bool]cuda.Elem{false: cuda.F32, true: cuda.BF16}[brief]
		from, to := cudatest.Encode(elem, v), quantizedBytes(rows, terms)
		bytes := to + 4*cuda.Scales(rows, terms)
		source, err := d.Alloc(len(from))
		require.NoError(t, err)
		result, err := d.Alloc(bytes)
		require.NoError(t, err)
		pin, err := d.Pin(max(len(from), bytes))
		require.NoError(t, err)
		copy(pin, from)
		require.NoError(t, s.CopyIn(source, pin[:len(from)]))
		f, err := m.Func(name+map[bool]string{false: "f", true: "b"}[brief], 0)
		require.NoError(t, err)
		var l cuda.List
		blocks := (rows + 15) / 16
		if across {
			blocks = (rows + 63) / 64
		}
		l.Add(f, [3]uint32{uint32(blocks), uint32(1 + r.IntN((terms+127)/128)), 1}, [3]uint32{256, 1, 1}, 0)
		l.Addr(result)
		l.Addr(source)
		l.Addr(result + uintptr(to))
		l.U64(uint64(ld))
		l.U32(uint32(rows))
		l.U32(uint32(terms))
		require.NoError(t, errors.Join(s.Run(&l), s.CopyOut(pin[:bytes], result), s.Sync()))
		for row := range rows {
			for block := 0; block < terms; block += cuda.ScaledTerms {
				var x []float64
				for term := block; term < min(block+cuda.ScaledTerms, terms); term++ {
					x = append(x, v[at(row, term)])
				}
				codes, scale := quantized(x)
				require.Equal(t, codes, pin[row*terms+block:][:len(x)], "row %d, terms from %d on of %v", row, block, x)
				got := binary.LittleEndian.Uint32(pin[to+4*(block/cuda.ScaledTerms*rows+row):])
				require.Equal(t, scale, float64(math.Float32frombits(got)), "row %d, terms from %d on of %v", row, block, x)
				for _, c := range codes {
					seen[c] = true
				}
			}
		}
		require.NoError(t, errors.Join(d.Unpin(pin), d.Free(source), d.Free(result)))
	}
	require.Len(t, seen, 256, "all codes")
	require.NoError(t, errors.Join(s.Close(), m.Unload(), d.Close()))
}

func fp8PTX(t *testing.T) []byte {
	for name, text := range Modules() {
		if name == "fp8" {
			return text
		}
	}
	require.Fail(t, "there is no such module")
	return nil
}

// eightFrom is how many multiplications are worth quantizing in these tests.
const eightFrom = 32 * 32 * 64

// quantizing makes a device that multiplies in e4m3 from eightFrom on.
func quantizing(t testing.TB, d cuda.Driver) *device.Accelerator {
	acc, err := Config{Precision: FP8, FP8From: eightFrom}.On(d, device.CUDA(0))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, acc.Close()) })
	return acc
}

// dequantized is a tensor whose matrices came to e4m3 and back, by blocks along their rows or,
// across, along their columns.
func dequantized(x kerneltest.Tensor, across bool) kerneltest.Tensor {
	x.V = slices.Clone(x.V)
	n := len(x.Shape)
	rows, cols := x.Shape[n-2], x.Shape[n-1]
	lines, length, next, step := rows, cols, cols, 1
	if across {
		lines, length, next, step = cols, rows, 1, cols
	}
	for m := 0; m < len(x.V); m += rows * cols {
		for line := range lines {
			for from := 0; from < length; from += cuda.ScaledTerms {
				var block []float64
				for k := from; k < min(from+cuda.ScaledTerms, length); k++ {
					block = append(block, x.V[m+line*next+k*step])
				}
				codes, scale := quantized(block)
				for k, v := range cudatest.Decode(cuda.E4M3, codes) {
					x.V[m+line*next+(from+k)*step] = v * scale
				}
			}
		}
	}
	return x
}

// fp8Ways are how often products were of e4m3, or why not.
func fp8Ways(d device.Device) map[string]int64 {
	ways := map[string]int64{}
	for _, w := range backends.Ways(d) {
		if w.Work == workFP8 {
			ways[w.By+w.Why] += w.Times
		}
	}
	return ways
}

// multiplied is what comes of an instruction once, and what it did with e4m3.
func multiplied(t *testing.T, d device.Device, i kernels.Instr, in []kerneltest.Tensor) ([]kerneltest.Tensor, string) {
	types := make([]kernels.Type, len(in))
	for k := range in {
		types[k] = in[k].Type
	}
	out, err := i.Infer(types)
	require.NoError(t, err)
	before := fp8Ways(d)
	got, err := kerneltest.RunOn(t, d, i, out, in)
	require.NoError(t, err)
	for way, times := range fp8Ways(d) {
		if times > before[way] {
			return got, way
		}
	}
	return got, ""
}

func TestProductsAreOfFactorsInE4M3FromAThresholdOnAndElseOfBFloat16(t *testing.T) {
	d, counts := quantizing(t, ptxtest.NewLibrary(t, ptx.Config{})), map[string]int{}
	pick := func(r *rand.Rand) int {
		return [...]int{16, 32, 48, 64, 16 * (1 + r.IntN(9)), 1 + r.IntN(80)}[r.IntN(6)]
	}
	for n := range soak.Cases(150) {
		r := rand.New(rand.NewPCG(8, uint64(1000+n)))
		i, rows, cols, terms := kernels.MatMul{TransA: r.IntN(2) == 0, TransB: r.IntN(2) == 0}, pick(r), pick(r), pick(r)
		a, b := device.Shape{rows, terms}, device.Shape{terms, cols}
		if i.TransA {
			a = device.Shape{terms, rows}
		}
		if i.TransB {
			b = device.Shape{cols, terms}
		}
		tall := rows
		switch r.IntN(4) {
		case 0: // a batch
			a, b = append(device.Shape{3}, a...), append(device.Shape{3}, b...)
		case 1: // the same factor for all
			if a = append(device.Shape{2}, a...); !i.TransA {
				tall = 2 * rows
			}
		}
		in := []kerneltest.Tensor{drawn(r, device.Float32, a...), drawn(r, device.Float32, b...)}
		got, way := multiplied(t, d, i, in)
		want := byLibrary
		switch {
		case tall*cols*terms < eightFrom:
			want = byBFloat16 + whySmall
		case tall%16 != 0 || cols%16 != 0 || terms%16 != 0:
			want = byBFloat16 + whyOdd
		}
		require.Equal(t, want, way, "%v of %v and %v", i, a, b)
		counts[way]++
		factors := rounded(in, 16)
		if want == byLibrary {
			factors = []kerneltest.Tensor{dequantized(in[0], i.TransA), dequantized(in[1], !i.TransB)}
		}
		exact, err := kerneltest.Oracle(i, factors, []kernels.Type{got[0].Type})
		require.NoError(t, err)
		require.Negative(t, kerneltest.Differ(i, got[0], exact[0]), "%v of %v and %v", i, a, b)
	}
	for _, way := range []string{byLibrary, byBFloat16 + whySmall, byBFloat16 + whyOdd} {
		require.Greater(t, counts[way], soak.Cases(60)/15, "%v", counts)
	}
}
