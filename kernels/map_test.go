package kernels

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
)

// geluOfBias is x+b, its gelu, and the sums of that by column and by row.
func geluOfBias(s device.Shape) Map {
	return Map{Shape: s, Steps: []Step{
		{Op: Binary{Fn: Add}, Args: [2]int{0, 1}}, {Op: Unary{Fn: Gelu}, Args: [2]int{2}},
	}, Outs: []Out{{Reg: 2}, {Reg: 3}, {Reg: 3, Fold: &Reduce{Fn: Sum, Axes: []int{0}}}, {Reg: 3, Fold: &Reduce{Fn: Max, Axes: []int{len(s) - 1}}}}}
}

// operands are memory for an instruction: results, and operands filled with small numbers.
func operands(t testing.TB, i Instr, in []Type) (outs, ins [][]byte) {
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
			in := []Type{ef32(s...), ef32(bias...)}
			i := geluOfBias(s)
			p := planMap[float32](i, in, nil, true)
			want, ins := operands(t, i, in)
			whole := p.begin(want, ins, 1)
			whole.units(0, 0, p.units, nil)
			whole.end()
			for range 20 {
				got, _ := operands(t, i, in)
				rows := s[:len(s)-1].Elems()
				part := (rows + 2) / 3
				run := p.begin(got, append([][]byte{nil}, ins[1]), 3)
				for _, k := range r.Perm(3) { // parts in any order, blocks of one in order
					for from, to := min(k*part, rows), 0; from < min((k+1)*part, rows); from = to {
						to = from + 1 + r.IntN(min((k+1)*part, rows)-from)
						run.rows(k, from, to, device.As[float32](ins[0])[from*p.row:to*p.row])
					}
				}
				run.end()
				require.True(t, slices.EqualFunc(want, got, near), "%v: %v and %v", in, want, got)
			}
		}
	}
}

func TestAMapGivesTheSameBitsOnAnyNumberOfThreads(t *testing.T) {
	in := []Type{ef32(3000, 70), ef32(70)}
	i := geluOfBias(in[0].Shape)
	p := planMap[float32](i, in, nil, false)
	require.Greater(t, p.parts, 3)
	var want [][]byte
	for _, c := range []*crew{newCrew(1), newCrew(2), newCrew(7)} {
		for range 5 {
			got, ins := operands(t, i, in)
			r := p.begin(got, ins, p.parts)
			c.spread(p.units, p.part, r)
			r.end()
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
	i := Map{Shape: device.Shape{4000}, Outs: []Out{{Reg: 30}}}
	for k := range 30 {
		i.Steps = append(i.Steps, Step{Op: Unary{Fn: Neg}, Args: [2]int{k}})
	}
	require.Equal(t, 1, planMap[float32](i, []Type{ef32(4000)}, nil, false).rows)
	i.Steps = append(i.Steps, Step{Op: Unary{Fn: Exp}, Args: [2]int{3}})
	require.Len(t, planMap[float32](i, []Type{ef32(4000)}, nil, false).steps, 30, "nothing needs the last")
}

func ef32(s ...int) Type { return Type{device.Float32, s} }
