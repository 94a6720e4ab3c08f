package autodiff

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
)

// gone says that the collector found what f made, which it must not keep reachable.
func gone(t *testing.T, f func(watch func(*Tensor))) {
	t.Helper()
	left := make(chan struct{}, 8)
	n := 0
	f(func(x *Tensor) {
		n++
		// On the node of what lies together, for which there is one cleanup for all.
		runtime.AddCleanup(x.edge.Node, func(struct{}) { left <- struct{}{} }, struct{}{})
	})
	for range n {
		for found := false; !found; {
			runtime.GC()
			select {
			case <-left:
				found = true
			case <-time.After(time.Millisecond):
			}
		}
	}
}

// A result's value lies in one piece of memory with its history. What outlives a step must not keep
// that.
func TestWhatIsDetachedDoesNotKeepItsHistory(t *testing.T) {
	w := Scalar(2.0).RequireGrad()
	var d, twice, view *Tensor
	var buf *device.Buffer
	var kept []*Tensor
	var g *Gradients
	gone(t, func(watch func(*Tensor)) {
		y := Mul(w, w)
		z := Tanh(y)
		d, twice, view = z.Detach(), z.Detach().Detach(), Reshape(z, 1).Detach()
		var err error
		buf, err = z.Acquire()
		require.NoError(t, err)
		kept = Checkpoint(func(in ...*Tensor) []*Tensor {
			made := Exp(in[0])
			watch(made)
			return []*Tensor{Mul(made, in[0])}
		}, w)
		_, err = z.OnGrad(func(g *Tensor) *Tensor {
			made := Mul(w, Add(g, w))
			watch(made)
			return made
		})
		require.NoError(t, err)
		g, err = Backward(z)
		require.NoError(t, err)
		watch(y)
		watch(z)
	})
	require.Equal(t, numbers(t, d), numbers(t, twice))
	require.Equal(t, numbers(t, d), numbers(t, view))
	require.NotNil(t, g.Of(w))
	require.NoError(t, buf.Release())
	require.NoError(t, kept[0].Err())
}

func TestABackwardLeavesTheGradientsOfItsRootsAsTheyAre(t *testing.T) {
	for _, n := range []int{2, 100} { // in one piece of memory, and not
		w, y := Full(device.Float64, 3, n).RequireGrad(), Full(device.Float64, 2, n)
		gy := Full(device.Float64, 5, n)
		z := Mul(Neg(Mul(w, y)), y)
		for range 2 {
			g, err := BackwardWith(Options{RetainGraph: true, Grads: []*Tensor{gy}}, z)
			require.NoError(t, err)
			require.Equal(t, 5., numbers(t, gy)[0])
			require.Equal(t, -20., numbers(t, g.Of(w))[n-1])
		}
		both, err := BackwardWith(Options{RetainGraph: true, Grads: []*Tensor{gy, gy}}, z, z)
		require.NoError(t, err)
		require.Equal(t, -40., numbers(t, both.Of(w))[n-1])
		require.Equal(t, 5., numbers(t, gy)[0])
	}
}

func TestWhatAHookKeepsOfAGradientIsNotOverwritten(t *testing.T) {
	w, y := Full(device.Float64, 3, 2).RequireGrad(), Full(device.Float64, 2, 2)
	a := Mul(w, y)
	z := Neg(a)
	var kept, copied *Tensor
	_, err := a.OnGrad(func(g *Tensor) *Tensor {
		kept = g
		b, err := g.Acquire()
		require.NoError(t, err)
		copied = Wrap(g.Type(), b, nil)
		return nil
	})
	require.NoError(t, err)
	g, err := Backward(Sum(z))
	require.NoError(t, err)
	require.Equal(t, []float64{-2, -2}, numbers(t, g.Of(w)))
	require.Equal(t, []float64{-1, -1}, numbers(t, copied))
	_, err = Values[float64](kept)
	require.ErrorIs(t, err, ErrFreed, "it was the hook's for as long as that ran")
}

func TestACallWithManyInputsAndSavedValuesIsRecordedAsAnyOther(t *testing.T) {
	f := Define("many", func(g *Graph, a, b, c, d, e node) (node, node) {
		return g.Mul(g.Mul(g.Mul(a, b), g.Mul(c, d)), g.Tanh(e)), g.Add(a, e)
	})
	before := device.Host().Stats().Live
	for _, owned := range []bool{false, true} {
		var in []*Tensor
		arena := NewArena("pass")
		for i := range 5 {
			x := Full(device.Float64, float64(i+1)/4, 3)
			if owned {
				require.NoError(t, arena.Adopt(x))
			}
			in = append(in, x.RequireGrad())
		}
		outs := f.CallAll(in...)
		require.Len(t, outs, 2)
		eager := Add(Mul(Mul(Mul(in[0], in[1]), Mul(in[2], in[3])), Tanh(in[4])), Add(in[0], in[4]))
		for range 2 {
			got, err := BackwardWith(Options{RetainGraph: true}, Sum(outs[0]), Sum(outs[1]))
			require.NoError(t, err)
			want, err := BackwardWith(Options{RetainGraph: true}, Sum(eager))
			require.NoError(t, err)
			for _, x := range in {
				require.InDeltaSlice(t, numbers(t, want.Of(x)), numbers(t, got.Of(x)), 1e-12)
			}
		}
		if owned {
			require.Len(t, arena.Nodes(), 14, "the call, 7 ops, 6 sums")
		}
		arena.Free()
	}
	require.Equal(t, before, device.Host().Stats().Live)
}

func TestAFailedCallInAFreedArenaLeavesNothing(t *testing.T) {
	before := device.Host().Stats()
	a := NewArena("pass")
	x := Rand(3, 3)
	require.NoError(t, a.Adopt(x))
	b, err := x.Acquire()
	require.NoError(t, err)
	a.Free()
	late := Wrap(x.Type(), b, nil)
	late.owner = a // as one whose arena is freed while it computes
	require.ErrorIs(t, Mul(late, Rand(3, 3).RequireGrad()).Err(), ErrFreed)
	require.ErrorIs(t, Add(late, Rand(3, 3)).Err(), ErrFreed)
	late.free()
	require.Equal(t, before.Live, device.Host().Stats().Live)
	require.Equal(t, before.LiveBytes, device.Host().Stats().LiveBytes)
}
