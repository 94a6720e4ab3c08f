package nn

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/kernels"
)

// alone gives of x (1, t, width) what each token sees by attention of ops that know no heads, one
// head after the other.
func alone(l *SelfAttention, x *autodiff.Tensor, keys int) *autodiff.Tensor {
	s := x.Shape()
	d, made := s[2]/l.Heads, l.QKV.Forward(x)
	part := func(at int) *autodiff.Tensor {
		return autodiff.Reshape(autodiff.Slice(made, 2, at*d, (at+1)*d), s[1], d)
	}
	var seen []*autodiff.Tensor
	for h := range l.Heads {
		key := h / (l.Heads / keys)
		scores := autodiff.Scale(autodiff.MatMulT(part(h), part(l.Heads+key), false, true), 1/float64(sqrt(d)))
		seen = append(seen, autodiff.MatMul(autodiff.Softmax(scores, -1), part(l.Heads+keys+key)))
	}
	return l.Out.Forward(autodiff.Reshape(autodiff.Concat(1, seen...), s...))
}

func sqrt(d int) (r int) {
	for r*r < d {
		r++
	}
	return r
}

func TestSelfAttentionIsThatOfEachHeadWithItsKeys(t *testing.T) {
	for _, keys := range []int{0, 1, 2, 4} {
		l := NewSelfAttention(rng(1), 16, 4, keys)
		x := autodiff.NormalFrom(rng(2), 1, 1, 5, 16)
		want := read(t, alone(l, x, sharedBy(4, keys)))
		require.InDeltaSlice(t, want, read(t, l.Forward(x)), 1e-5)
		require.Len(t, l.Params(), 4)
		l.Causal = true
		got := read(t, l.Forward(x))
		require.InDeltaSlice(t, want[4*16:], got[4*16:], 1e-5, "the last token sees all")
		require.NotEqual(t, want[:16], got[:16])
	}
}

func TestPaddedTokensAreNoBusinessOfOthers(t *testing.T) {
	l := NewSelfAttention(rng(3), 8, 2, 1)
	x := autodiff.NormalFrom(rng(4), 1, 2, 6, 8)
	got := read(t, l.Masked(x, Padding(6, 4, 6)))
	require.InDeltaSlice(t, read(t, l.Forward(autodiff.Slice(autodiff.Slice(x, 0, 0, 1), 1, 0, 4))), got[:4*8], 1e-5)
	require.InDeltaSlice(t, read(t, l.Forward(autodiff.Slice(x, 0, 1, 2))), got[6*8:], 1e-5)
	for _, v := range read(t, l.Masked(x, Padding(6, 0, 6)))[:8] {
		require.False(t, v != v, "a token that sees nothing")
	}
}

func TestAttentionDropsWeightsInTrainingAloneAndTheSameOnesInACheckpoint(t *testing.T) {
	l := NewSelfAttention(rng(5), 8, 2, 0)
	x := autodiff.NormalFrom(rng(6), 1, 1, 12, 8).RequireGrad()
	all := read(t, l.Forward(x))
	l.Drop = NewDropout(rng(7), 0.5)
	first := read(t, l.Forward(x))
	require.NotEqual(t, all, first)
	require.NotEqual(t, first, read(t, l.Forward(x)), "each forward drops others")
	l.Drop.SetRandom(l.Drop.seeded(), 0)
	y := autodiff.Checkpoint(func(in ...*autodiff.Tensor) []*autodiff.Tensor { return []*autodiff.Tensor{l.Forward(in[0])} }, x)[0]
	require.Equal(t, first, read(t, y))
	again, err := autodiff.Backward(autodiff.Sum(y))
	require.NoError(t, err)
	l.Drop.SetRandom(l.Drop.seeded(), 0)
	once, err := autodiff.Backward(autodiff.Sum(l.Forward(x)))
	require.NoError(t, err)
	require.InDeltaSlice(t, read(t, once.Of(x)), read(t, again.Of(x)), 1e-6)
	Eval(l)
	require.Equal(t, all, read(t, l.Forward(x)))
	names := []string{}
	for name := range State(l) {
		names = append(names, name)
	}
	require.Equal(t, []string{"QKV.W", "QKV.B", "Out.W", "Out.B", "Drop.Random"}, names)
}

func TestSelfAttentionSaysWhatIsWrongWithItsHeads(t *testing.T) {
	x := autodiff.NormalFrom(rng(8), 1, 2, 3, 8)
	for _, l := range []*SelfAttention{{Heads: 0}, {Heads: 3}, {Heads: 4, Keys: 3}, {Heads: 4, Keys: -1}} {
		require.ErrorIs(t, l.Forward(x).Err(), autodiff.ErrFunction, fmt.Sprint(l.Heads, l.Keys))
	}
	l := NewSelfAttention(rng(9), 8, 2, 0)
	require.ErrorContains(t, l.Forward(autodiff.NormalFrom(rng(8), 1, 3, 8)).Err(), "(b, t, width)")
	require.ErrorIs(t, l.Masked(x, autodiff.NormalFrom(rng(8), 1, 2, 3)).Err(), kernels.ErrOperands)
	require.Error(t, l.Forward(nil).Err())
	require.NoError(t, NewSelfAttention(rng(9), 8, 0, 0).Out.W.Err())
}
