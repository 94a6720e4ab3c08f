package kernels

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
)

func bf16(s ...int) Type { return Type{device.BFloat16, s} }

func TestANarrowInstructionTakesAndGivesBFloat16WhereItSays(t *testing.T) {
	out, err := Narrow{Of: MatMul{}, Outs: []bool{true}}.Infer([]Type{bf16(2, 3), f32(3, 4)})
	require.NoError(t, err)
	require.Equal(t, []Type{bf16(2, 4)}, out)
	out, err = Narrow{Of: MatMul{}}.Infer([]Type{bf16(2, 3), bf16(3, 4)})
	require.NoError(t, err)
	require.Equal(t, []Type{f32(2, 4)}, out)
}

func TestAnyOfManyResultsMayBeNarrow(t *testing.T) {
	const results = 200
	m := Map{Shape: device.Shape{4}, Outs: make([]Out, results)}
	for k := range results {
		i := Narrow{Of: m, Outs: make([]bool, results)}
		i.Outs[k] = true
		out, err := i.Infer([]Type{f32(4)})
		require.NoError(t, err)
		for at := range out {
			require.Equal(t, at == k, IsNarrow(out[at]), "result %d of which %d is narrow", at, k)
		}
		require.Contains(t, i.String(), fmt.Sprintf(" →%d:bfloat16", k), "two that differ print as one")
	}
}

func TestOnlyANarrowInstructionReadsBFloat16(t *testing.T) {
	for _, i := range []Instr{MatMul{}, Binary{Fn: Add}, Concat{}, Map{Shape: device.Shape{2, 2}, Outs: []Out{{}}}} {
		_, err := i.Infer([]Type{bf16(2, 2), bf16(2, 2)})
		require.ErrorIs(t, err, ErrOperands, "%v", i)
	}
	_, err := Cast{To: device.BFloat16}.Infer([]Type{f32(2)})
	require.ErrorIs(t, err, ErrOperands)
	_, err = Fill{Type: bf16(2)}.Infer(nil)
	require.ErrorIs(t, err, ErrOperands)
}

func TestWhatCannotBeNarrowIsRefused(t *testing.T) {
	double := Type{device.Float64, device.Shape{2, 2}}
	then := MatMulThen{Then: Map{Shape: device.Shape{2, 2}, Outs: []Out{{}}}}
	for text, c := range map[string]struct {
		i  Narrow
		in []Type
	}{
		"not narrow itself":              {Narrow{Of: Narrow{Of: MatMul{}}}, []Type{f32(2, 2), f32(2, 2)}},
		"expected an instruction":        {Narrow{}, nil},
		"there are 1 results":            {Narrow{Of: MatMul{}, Outs: []bool{false, true}}, []Type{f32(2, 2), f32(2, 2)}},
		"only float32 can be rounded":    {Narrow{Of: MatMul{}, Outs: []bool{true}}, []Type{double, double}},
		"the inner extents":              {Narrow{Of: MatMul{}}, []Type{bf16(2, 3), f32(2, 3)}},
		"only a MatMulThen of float32":   {Narrow{Of: MatMul{}, Product: true}, []Type{f32(2, 2), f32(2, 2)}},
		"has a product to round":         {Narrow{Of: then, Product: true}, []Type{double, double}},
		"differ in dtype":                {Narrow{Of: Binary{}}, []Type{bf16(2, 2), double}},
		"expected 2 operands, got 1":     {Narrow{Of: MatMul{}}, []Type{bf16(2, 2)}},
		"expected two or more operands":  {Narrow{Of: then, Product: true}, nil},
		"expected one or more operands ": {Narrow{Of: then.Then}, nil},
	} {
		_, err := c.i.Infer(c.in)
		require.ErrorIs(t, err, ErrOperands, text)
	}
}

func TestANarrowResultLiesOverAnOperandOfItsSizeAlone(t *testing.T) {
	steps := []Step{{Op: Unary{Fn: Tanh}}, {Op: Unary{Fn: Tanh}, Args: [2]int{1, 1}}}
	i := Narrow{Of: Map{Shape: device.Shape{8}, Steps: steps, Outs: []Out{{Reg: 2}, {Reg: 3}}}, Outs: []bool{true}}
	in := []Type{bf16(8), f32(8)}
	may := [2][2]bool{}
	for result := range may {
		for operand := range in {
			may[result][operand] = Overwrites(i, in, result, operand)
		}
	}
	require.Equal(t, [2][2]bool{{true, false}, {false, true}}, may)
}

func TestTheCostOfANarrowInstructionCountsItsBytes(t *testing.T) {
	in := []Type{bf16(4, 8), f32(8, 2)}
	i := Narrow{Of: MatMul{}, Outs: []bool{true}}
	out, err := i.Infer(in)
	require.NoError(t, err)
	require.Equal(t, Cost{Flops: 2 * 4 * 8 * 2, Bytes: 2*4*8 + 4*8*2 + 2*4*2}, CostOf(i, in, out))
}
