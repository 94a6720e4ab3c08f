package elementwise

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/cpu/internal/parallel"
)

// geluOfBias is x+b, its gelu, and the sums of that by column and by row.
func geluOfBias(s device.Shape) kernels.Map {
	return kernels.Map{Shape: s, Steps: []kernels.Step{
		{Op: kernels.Binary{Fn: kernels.Add}, Args: [2]int{0, 1}}, {Op: kernels.Unary{Fn: kernels.Gelu}, Args: [2]int{2}},
	}, Outs: []kernels.Out{{Reg: 2}, {Reg: 3}, {Reg: 3, Fold: &kernels.Reduce{Fn: kernels.Sum, Axes: []int{0}}}, {Reg: 3, Fold: &kernels.Reduce{Fn: kernels.Max, Axes: []int{len(s) - 1}}}}}
}

// operands are memory for an instruction: results, and operands filled with small numbers.
func operands(t testing.TB, i kernels.Instr, in []kernels.Type) (outs, ins [][]byte) {
	out, err := i.Infer(in)
	require.NoError(t, err)
	for _, o := range out {
		outs = append(outs, make([]byte, o.Bytes()))
	}
	for _, x := range in {
		v := make([]float32, x.Shape.Elems())
		for k := range v {
			v[k] = float32(k%13)/8 - 0.75
		}
		ins = append(ins, device.Bytes(v))
	}
	return outs, ins
}

func TestAMapRunsInBlocksOfRowsAsItDoesAtOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for _, s := range []device.Shape{{70, 3}, {3, 50, 7}, {4, 3000}, {9, 1}, {300, 40}, {1, 5}, {0, 5}} {
		for _, bias := range []device.Shape{s, s[len(s)-1:], {}, {s[len(s)-2], 1}} {
			in := []kernels.Type{ef32(s...), ef32(bias...)}
			i := geluOfBias(s)
			p := NewPlan[float32](i, in, nil, true)
			want, ins := operands(t, i, in)
			whole := p.Begin(want, ins, 1)
			whole.units(0, 0, p.units, nil)
			whole.End()
			for range 20 {
				got, _ := operands(t, i, in)
				rows := s[:len(s)-1].Elems()
				part := (rows + 2) / 3
				run := p.Begin(got, append([][]byte{nil}, ins[1]), 3)
				for _, k := range r.Perm(3) { // parts in any order, blocks of one in order
					for from, to := min(k*part, rows), 0; from < min((k+1)*part, rows); from = to {
						to = from + 1 + r.IntN(min((k+1)*part, rows)-from)
						run.Rows(k, from, to, device.As[float32](ins[0])[from*p.row:to*p.row])
					}
				}
				run.End()
				require.True(t, slices.EqualFunc(want, got, near), "%v: %v and %v", in, want, got)
			}
		}
	}
}

func TestAMapGivesTheSameBitsOnAnyNumberOfThreads(t *testing.T) {
	in := []kernels.Type{ef32(3000, 70), ef32(70)}
	i := geluOfBias(in[0].Shape)
	p := NewPlan[float32](i, in, nil, false)
	require.Greater(t, p.parts, 3)
	var want [][]byte
	for _, c := range []*parallel.Pool{parallel.NewPool(1), parallel.NewPool(2), parallel.NewPool(7)} {
		for range 5 {
			got, ins := operands(t, i, in)
			r := p.Begin(got, ins, p.parts)
			c.For(p.units, p.part, r)
			r.End()
			if want == nil {
				want = got
			}
			require.Equal(t, want, got)
		}
	}
}

// near compares float32s; sums in another order may differ by a little.
func near(a, b []byte) bool {
	return slices.EqualFunc(device.As[float32](a), device.As[float32](b), func(x, y float32) bool { return math.Abs(float64(x-y)) <= 1e-4 })
}

func TestAMapKeepsFewRowsOfScratch(t *testing.T) {
	i := kernels.Map{Shape: device.Shape{4000}, Outs: []kernels.Out{{Reg: 30}}}
	for k := range 30 {
		i.Steps = append(i.Steps, kernels.Step{Op: kernels.Unary{Fn: kernels.Neg}, Args: [2]int{k}})
	}
	require.Equal(t, 1, NewPlan[float32](i, []kernels.Type{ef32(4000)}, nil, false).rows)
	i.Steps = append(i.Steps, kernels.Step{Op: kernels.Unary{Fn: kernels.Exp}, Args: [2]int{3}})
	require.Len(t, NewPlan[float32](i, []kernels.Type{ef32(4000)}, nil, false).steps, 30, "nothing needs the last")
}

func ef32(s ...int) kernels.Type { return kernels.Type{Dtype: device.Float32, Shape: s} }
