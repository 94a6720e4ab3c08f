package nn

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
)

// byValue is a layer whose tensor cannot be replaced.
type byValue struct{ W *autodiff.Tensor }

func (l byValue) Forward(x *autodiff.Tensor) *autodiff.Tensor { return autodiff.Mul(x, l.W) }
func (l byValue) Params() []*autodiff.Tensor                  { return []*autodiff.Tensor{l.W} }

func TestALayerThatMovedComputesThereWithTheSameValues(t *testing.T) {
	dev := device.NewSim(device.SimConfig{})
	src := rand.New(rand.NewPCG(1, 1))
	shared, norm := NewLinear(src, 3, 3), NewBatchNorm(3)
	l := Sequential{shared, Activation(autodiff.ReLU), norm, shared, &Linear{W: shared.W, B: NewLinear(src, 3, 3).B}, NewDropout(nil, 0)}
	Eval(l)
	x := autodiff.NormalFrom(src, 1, 2, 3)
	want, err := autodiff.Values[float32](l.Forward(x))
	require.NoError(t, err)
	old := shared.W
	require.NoError(t, To(l, dev))
	require.NotSame(t, old, shared.W)
	require.Equal(t, device.ID{}, old.Device())
	require.Same(t, shared.W, l[4].(*Linear).W, "what was tied stays so")
	for path, tensor := range State(l) {
		if strings.HasSuffix(path, ".Random") {
			continue // a copy, on the host
		}
		require.Equal(t, dev.ID(), tensor.Device(), path)
		require.Equal(t, path != "2.RunningMean" && path != "2.RunningVar", tensor.RequiresGrad(), path)
	}
	got, err := autodiff.Values[float32](l.Forward(autodiff.To(x, dev)))
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.NoError(t, To(l, device.Host()))
	require.Equal(t, device.ID{}, l.Params()[0].Device())
}

func TestALayerThatCannotMoveStaysAsItIs(t *testing.T) {
	src := rand.New(rand.NewPCG(1, 1))
	first := NewLinear(src, 3, 3)
	l := Sequential{first, byValue{autodiff.Ones(device.Float32, 3)}}
	require.ErrorContains(t, To(l, device.NewSim(device.SimConfig{})), "1.W lies in a struct that is no pointer")
	require.Equal(t, device.ID{}, first.W.Device())
	require.ErrorIs(t, To(Sequential{first, NewLinear(src, 64, 64)}, device.NewSim(device.SimConfig{Bytes: 8192})), device.ErrMemory)
	require.Equal(t, device.ID{}, first.W.Device())
}
