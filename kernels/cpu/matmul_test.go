package cpu

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/cpu/internal/blas"
	"github.com/weft-project/weft/kernels/cpu/internal/elementwise"
)

// random is a tensor's memory, of small numbers.
func random(r *rand.Rand, t kernels.Type) []byte {
	b := device.Bytes(make([]int64, t.Bytes()/8+1))[:t.Bytes()]
	for k := range device.As[float32](b) {
		device.As[float32](b)[k] = float32(r.IntN(9) - 4)
	}
	return b
}

// spoilt is memory for a result, with what must not be read.
func spoilt(t kernels.Type) []byte {
	b := device.Bytes(make([]int64, t.Bytes()/8+1))[:t.Bytes()]
	for k := range b {
		b[k] = 0xff
	}
	return b
}

// TestAProductIsTheSameInWhateverBlocksItsMapRuns compares products cut into blocks with a product
// and a map one after the other. The numbers are small and whole, so that every order of sums gives
// the same.
func TestAProductIsTheSameInWhateverBlocksItsMapRuns(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	sum := &kernels.Reduce{Fn: kernels.Sum, Axes: []int{0}}
	for range 300 {
		batch := device.Shape{1 + r.IntN(4)}
		m, n, k := r.IntN(40), r.IntN(20), r.IntN(6)
		a, b, c := cpuf32(batch[0], m, k), cpuf32(k, n), cpuf32(batch[0], m, n)
		if r.IntN(2) == 0 {
			b = cpuf32(batch[0], k, n)
		}
		then := kernels.Map{Shape: c.Shape, Steps: []kernels.Step{{Op: kernels.Binary{Fn: kernels.Add}, Args: [2]int{0, 1}}, {Op: kernels.Unary{Fn: kernels.Relu}, Args: [2]int{3}}, {Op: kernels.Binary{Fn: kernels.Mul}, Args: [2]int{4, 2}}}}
		outs := []kernels.Out{{Reg: 5}, {Reg: 4, Fold: sum}, {Reg: 3, Fold: &kernels.Reduce{Fn: kernels.Max, Axes: []int{2}}}, {Reg: 5, Fold: &kernels.Reduce{}}, {Reg: 0}}
		r.Shuffle(len(outs), func(a, b int) { outs[a], outs[b] = outs[b], outs[a] })
		then.Outs = outs[:1+r.IntN(len(outs))]
		i := kernels.MatMulThen{Then: then}
		in := []kernels.Type{a, b, cpuf32(n), cpuf32(batch[0], 1, 1)}
		out, err := i.Infer(in)
		if err != nil {
			continue // no maximum of nothing
		}
		var ins, want, got [][]byte
		for _, x := range in {
			ins = append(ins, random(r, x))
		}
		for _, x := range out {
			want, got = append(want, spoilt(x)), append(got, spoilt(x))
		}
		product := spoilt(c)
		require.NoError(t, matMulBody[float32](kernels.MatMul{}, in[:2], nil, c, blas.All()["plain"])([][]byte{product}, ins[:2]))
		require.NoError(t, elementwise.Map[float32](then, append([]kernels.Type{c}, in[2:]...), nil)(want, append([][]byte{product}, ins[2:]...)))
		p := planProductThen[float32](i, in, nil, blas.All()["plain"])
		block := 1 + r.IntN(max(p.count, 1))
		if p.M > 0 && p.M < p.count {
			block = p.M * (1 + r.IntN(4))
		}
		p.inBlocks(block, 1+r.IntN(9))
		for range 2 {
			require.NoError(t, p.compute(got, ins))
			require.Equal(t, want, got, "%v of %v in blocks of %d, parts of %d", i, in, p.block, p.part)
		}
	}
}

func TestMatMulWithEveryGemmerIsTheSameProduct(t *testing.T) {
	in := []kernels.Type{{Dtype: device.Float32, Shape: device.Shape{3, 40, 50}}, {Dtype: device.Float32, Shape: device.Shape{50, 60}}}
	a, b := make([]float32, 3*40*50), make([]float32, 50*60)
	for k := range a {
		a[k] = float32(k%7) - 3
	}
	for k := range b {
		b[k] = float32(k%5) - 2
	}
	out, err := kernels.MatMul{}.Infer(in)
	require.NoError(t, err)
	want := make([]float32, 120*60)
	blas.Multiply(blas.Contiguous(false, false, 120, 60, 50), blas.All()["plain"], a, b, want)
	for name, g := range blas.All() {
		c := make([]float32, out[0].Shape.Elems())
		run := matMulBody[float32](kernels.MatMul{}, in, nil, out[0], g)
		require.NoError(t, run([][]byte{device.Bytes(c)}, [][]byte{device.Bytes(a), device.Bytes(b)}))
		for k := range c {
			require.Equal(t, want[k], c[k], name) // small integers are exact
		}
	}
}
