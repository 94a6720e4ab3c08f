package optim

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
	"github.com/weft-project/weft/kernels/gpu"
)

// Optimizers of one parameter each have nothing to step together.
func TestParametersSteppedTogetherAreWhereTheyWouldBeAlone(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, rule := range rules {
		var together, alone []*autodiff.Tensor
		var singles []*Local
		for n := range 50 {
			v := make([]float64, 1+r.IntN(40))
			for k := range v {
				v[k] = r.NormFloat64()
			}
			dtype := device.Float32
			if n >= 20 && n%3 == 0 { // a run that fits together, then changes
				dtype = device.Float64
			}
			leaf := func() *autodiff.Tensor { return autodiff.Cast(autodiff.New(v), dtype).RequireGrad() }
			together, alone = append(together, leaf()), append(alone, leaf())
			o, err := New(rule, alone[n])
			require.NoError(t, err)
			singles = append(singles, o)
		}
		o, err := New(rule, together...)
		require.NoError(t, err)
		for step := range 4 {
			grads := map[*autodiff.Tensor]*autodiff.Tensor{}
			for n, p := range together {
				if r.IntN(5) == 0 { // from now on it is a step behind the others
					continue
				}
				like, err := autodiff.Values[float64](autodiff.Cast(p, device.Float64))
				require.NoError(t, err)
				if step == 2 && n == 7 {
					like = append(like, 1) // a shape that cannot be
				}
				g := autodiff.Cast(autodiff.New(like), p.Dtype())
				grads[p], grads[alone[n]] = g, g
			}
			err := o.Step(grads)
			if grads[together[7]] != nil && step == 2 {
				require.ErrorContains(t, err, "parameter 7:")
			} else {
				require.NoError(t, err)
			}
			for _, s := range singles {
				_ = s.Step(grads)
			}
		}
		for n := range together {
			require.Equal(t, singles[n].params[0].Steps, o.params[n].Steps)
			require.Equal(t, valuesOf(t, alone[n]), valuesOf(t, together[n]), "%v: parameter %d", rule.Update(), n)
			for k := range o.params[n].Slots {
				require.Equal(t, valuesOf(t, singles[n].params[0].Slots[k]), valuesOf(t, o.params[n].Slots[k]))
			}
		}
	}
}

func valuesOf(t *testing.T, x *autodiff.Tensor) any {
	if v, err := autodiff.Values[float32](x); err == nil {
		return v
	}
	v, err := autodiff.Values[float64](x)
	require.NoError(t, err)
	return v
}

// GPT-2 small has 148 parameters, of which a launch of Adam takes 44.
func TestAStepOnAGPULaunchesOneKernelForAsManyParametersAsItsArgumentsHold(t *testing.T) {
	m := ptxtest.New(ptx.Config{Traffic: true})
	g, err := gpu.On(m, device.CUDA(0))
	require.NoError(t, err)
	var params []*autodiff.Tensor
	grads := map[*autodiff.Tensor]*autodiff.Tensor{}
	for n := range 148 {
		p := autodiff.To(autodiff.Ones(device.Float32, 1+n%7), g).RequireGrad()
		params, grads[p] = append(params, p), p.Detach()
	}
	o, err := New(AdamW{}, params...)
	require.NoError(t, err)
	for range 3 {
		before := m.Traffic()["update_f32"].Launches
		require.NoError(t, o.Step(grads))
		require.NoError(t, g.Check())
		require.EqualValues(t, 4, m.Traffic()["update_f32"].Launches-before)
	}
	require.NoError(t, g.Close())
}
