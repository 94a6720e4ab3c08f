package program

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/kernels"
)

func TestNarrowingChangesNothingButHowValuesAreStored(t *testing.T) {
	narrowed := 0
	for seed := range soak.Cases(300) {
		r := rand.New(rand.NewPCG(uint64(seed), 81))
		u := growUnit(r)
		Optimize(u)
		in := randomTensors(r, u)
		want := evaluate(t, u, in, interpret)
		after := u.clone()
		after.NarrowGiven, after.NarrowResults = someOf(r, len(u.Given)), someOf(r, len(u.Results))
		after.WideResults = someOf(r, len(u.Results))
		before := after.String()
		narrow(after)
		require.NoError(t, after.Check(), "seed %d:\n%s", seed, before)
		require.Equal(t, before, u.String(), "it writes into what the unit shares")
		for k, v := range u.Given {
			require.Equal(t, asFlagged(u.Types[v], after.NarrowGiven[k]), after.Types[after.Given[k]], "seed %d: input %d\n%s", seed, k, before)
			in[k].Type = after.Types[after.Given[k]]
		}
		for k, v := range u.Results {
			require.Equal(t, asFlagged(u.Types[v], after.NarrowResults[k]), after.Types[after.Results[k]], "seed %d: result %d\n%s", seed, k, before)
		}
		for _, typ := range after.Types {
			if typ.Dtype == device.BFloat16 {
				narrowed++
			}
		}
		got := recast(evaluate(t, after, in, interpret), device.BFloat16, device.Float32)
		require.Empty(t, difference(u, after, want, got), "seed %d", seed)
	}
	require.Greater(t, narrowed, soak.Cases(300), "too little is narrow to show anything")
}

func someOf(r *rand.Rand, n int) []bool {
	some := make([]bool, n)
	for k := range some {
		some[k] = r.IntN(3) == 0
	}
	return some
}

func asFlagged(t kernels.Type, narrow bool) kernels.Type {
	if narrow && t.Dtype == device.Float32 {
		t.Dtype = device.BFloat16
	}
	return t
}

// What lies over each other in a plan has one form, or a value of 2 bytes would be written into the
// half of one of 4.
func TestAPlanOfANarrowUnitFitsItsTypes(t *testing.T) {
	for seed := range soak.Cases(300) {
		r := rand.New(rand.NewPCG(uint64(seed), 82))
		u := growUnit(r)
		Optimize(u)
		u.NarrowGiven, u.NarrowResults = someOf(r, len(u.Given)), someOf(r, len(u.Results))
		narrow(u)
		p := lay(u, ownBuffer)
		l, err := kernels.NewLayout(p.bufs, p.written)
		require.NoError(t, err)
		for _, c := range p.calls {
			s, err := kernels.Sign(c.Instr, c.In)
			require.NoError(t, err)
			require.NoError(t, l.Places(&s, c.Outs, c.Ins), "seed %d: %v", seed, c.Instr)
		}
	}
}

func TestAnInstructionMayHaveMoreNarrowResultsThanAWordHasBits(t *testing.T) {
	u := &Unit{Name: "many"}
	x := u.Input(kernels.Type{Dtype: device.Float32, Shape: device.Shape{3}})
	m := kernels.Map{Shape: device.Shape{3}, Outs: make([]kernels.Out, 70)}
	var err error
	u.Results, err = u.Apply(m, x)
	require.NoError(t, err)
	for k := range m.Outs {
		u.NarrowResults = append(u.NarrowResults, k%3 == 2)
	}
	narrow(u)
	require.NoError(t, u.Check())
	for k, v := range u.Results {
		require.Equal(t, k%3 == 2, kernels.IsNarrow(u.Types[v]), "result %d", k)
	}
}

func TestAPassThatForgetsThatAValueIsNarrowIsFound(t *testing.T) {
	u := parseUnit(t, "wrong\ngiven %0 float32(2, 3), %1 float32(3, 4), %2 float32(4, 2)\n%3 = MatMul %0 %1\n%4 = Tanh %3\n%5 = MatMul %4 %2\nresults %5\n")
	narrow(u)
	require.NoError(t, u.Check())
	n, ok := u.Insts[2].Instr.(kernels.Narrow)
	require.True(t, ok, "the product reads what is narrow")
	u.Insts[2].Instr = n.Of
	require.Error(t, u.Check(), "as a plain product it may not")
}
