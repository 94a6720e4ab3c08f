package kernels

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
)

// The definition looks at every pair.
func TestSharingThatAnInstructionDoesNotAllowIsFoundAmongAnyNumberOfBuffers(t *testing.T) {
	r, f := rand.New(rand.NewPCG(3, 3)), Type{Dtype: device.Float32, Shape: device.Shape{2}}
	refused := 0
	for n := range 300 {
		many := []int{1, 2, 15, 16, 17, 33, 60}[n%7] // with two results each
		in := make([]Type, 3*many)
		for k := range in {
			in[k] = f
		}
		s, err := Sign(UpdateMany{Of: Update{Rule: SGD, LR: 1, Momentum: 1, Step: 1}}, in)
		require.NoError(t, err)
		ins, outs := make([]*device.Buffer, len(in)), make([]*device.Buffer, len(s.Out))
		for k := range ins {
			ins[k], err = device.Host().Alloc(f.Bytes())
			require.NoError(t, err)
		}
		for k := range outs {
			outs[k] = ins[k/2*3+Replaced(k%2)]
		}
		switch n % 4 {
		case 1:
			outs[r.IntN(len(outs))] = outs[r.IntN(len(outs))]
		case 2:
			outs[r.IntN(len(outs))] = ins[r.IntN(len(ins))]
		case 3:
			ins[r.IntN(len(ins))] = ins[r.IntN(len(ins))]
		}
		good := true
		for k, o := range outs {
			good = good && !slices.Contains(outs[:k], o)
			for m, a := range ins {
				good = good && (a != o || overwrites(s.Instr, s.In, s.Out, k, m))
			}
		}
		if err = s.Check(outs, ins); good {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, ErrOperands)
			refused++
		}
	}
	require.Greater(t, refused, 50)
	require.Less(t, refused, 250)
}
