package gen

import (
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/kerneltest"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/kernels"
)

var rewrite = flag.Bool("rewrite", false, "write testdata anew")

func float(s ...int) kernels.Type { return kernels.Type{Dtype: device.Float32, Shape: s} }

func TestTextsAreAsReviewed(t *testing.T) {
	same := kernels.Map{Shape: device.Shape{1 << 20}, Outs: []kernels.Out{{}}}
	for name, c := range map[string]Case{
		"bias":      {Instr: kernels.Binary{Fn: kernels.Add}, In: []kernels.Type{float(64, 1024), float(1024)}},
		"exp":       {Instr: kernels.Unary{Fn: kernels.Exp}, In: []kernels.Type{{Dtype: device.Float32, Shape: device.Shape{1023}}}},
		"rows":      {Instr: kernels.Reduce{Fn: kernels.Mean, Axes: []int{1}}, In: []kernels.Type{float(4096, 64)}},
		"columns":   {Instr: kernels.Reduce{Fn: kernels.Sum, Axes: []int{0}}, In: []kernels.Type{float(4096, 64)}},
		"all":       {Instr: kernels.Reduce{Fn: kernels.Max}, In: []kernels.Type{float(1 << 20)}},
		"transpose": {Instr: kernels.Transpose{Perm: []int{0, 2, 1}}, In: []kernels.Type{float(3, 64, 48)}},
		"widen":     {Instr: kernels.Narrow{Of: same}, In: []kernels.Type{{Dtype: device.BFloat16, Shape: same.Shape}}},
		"narrow":    {Instr: kernels.Narrow{Of: same, Outs: []bool{true}}, In: []kernels.Type{{Dtype: device.Float32, Shape: same.Shape}}},
		"pad":       {Instr: kernels.Pad{Axis: 1, Before: 1, After: 2}, In: []kernels.Type{float(5, 6)}},
	} {
		code, err := c.Code()
		require.NoError(t, err)
		text, _ := Module(code.Kernels)
		file := filepath.Join("testdata", name+".ptx")
		if *rewrite {
			require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		}
		want, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, string(want), text, "go test ./kernels/gpu/internal/gen -rewrite, and review the change")
	}
}

func TestEqualCasesHaveEqualCodeAndEqualKeys(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	keys := map[string]Code{}
	for range soak.Cases(300) {
		i, in := kerneltest.Case(r, families[r.IntN(len(families))])
		c := Case{Instr: i}
		for _, x := range in {
			c.In = append(c.In, x.Type)
		}
		one, err := c.Code()
		require.NoError(t, err)
		two, err := c.Code()
		require.NoError(t, err)
		require.Equal(t, one, two)
		if before, ok := keys[c.Key()]; ok {
			require.Equal(t, before, one)
		}
		keys[c.Key()] = one
		require.Zero(t, one.Scratch%256)
		for _, k := range one.Kernels {
			require.Zero(t, k.Block%32)
			require.LessOrEqual(t, k.Block, 1024)
			require.Positive(t, k.Blocks[0])
			require.LessOrEqual(t, k.Blocks[1], 65535)
			for _, p := range k.Params {
				if p.Of == Scratch {
					require.Less(t, p.Off, one.Scratch)
				}
			}
		}
	}
}

func TestAModuleHoldsEqualKernelsOnce(t *testing.T) {
	add := func(n int) []Kernel {
		c, err := Case{Instr: kernels.Binary{}, In: []kernels.Type{float(n), float(n)}}.Code()
		require.NoError(t, err)
		return c.Kernels
	}
	text, names := Module(append(append(add(4), add(8)...), add(4)...))
	require.Equal(t, []string{"weft_0", "weft_1", "weft_0"}, names)
	require.Equal(t, 2, strings.Count(text, ".entry"))
}

func TestOtherInstructionsAndBadOperandsAreRefused(t *testing.T) {
	_, err := Case{Instr: kernels.MatMul{}, In: []kernels.Type{float(2, 2), float(2, 2)}}.Code()
	require.ErrorIs(t, err, ErrUnknown)
	_, err = Case{Instr: kernels.Viewed{Of: kernels.MatMul{}, In: make([]*kernels.View, 2)}, In: []kernels.Type{float(2, 2), float(2, 2)}}.Code()
	require.ErrorIs(t, err, ErrUnknown)
	_, err = Case{Instr: kernels.Viewed{Of: kernels.MatMul{}, In: make([]*kernels.View, 2)}, In: []kernels.Type{float(0, 2), float(2, 2)}}.Code()
	require.ErrorIs(t, err, ErrUnknown, "also where the result is empty")
	_, err = Case{Instr: kernels.Binary{}, In: []kernels.Type{float(2), float(3)}}.Code()
	require.ErrorIs(t, err, kernels.ErrOperands)
	sum := kernels.Map{Shape: device.Shape{4}, Outs: []kernels.Out{{Reg: 2 * (maxParams - 1)}}}
	in := []kernels.Type{float(4)}
	for k := range maxParams - 1 {
		in = append(in, float(4))
		sum.Steps = append(sum.Steps, kernels.Step{Op: kernels.Binary{}, Args: [2]int{k + 1, maxParams + max(k-1, 0)}})
	}
	sum.Steps[0].Args[1] = 0
	_, err = Case{Instr: sum, In: in}.Code()
	require.ErrorIs(t, err, ErrUnknown)
	require.ErrorContains(t, err, "513 operands")
}

func TestLargeTensorsHaveWideIndices(t *testing.T) {
	for n, want := range map[int]bool{1 << 28: false, 1 << 36: true} {
		c, err := Case{Instr: kernels.Binary{}, In: []kernels.Type{float(n, 3), float(3)}}.Code()
		require.NoError(t, err)
		require.Equal(t, want, strings.Contains(c.Kernels[0].Body, "mul.hi.u64"))
		require.Less(t, c.Kernels[0].Blocks[0], math.MaxInt32)
	}
}
