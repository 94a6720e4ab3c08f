package gorgonia

import (
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
)

// BenchmarkModelsOfGorgonias is a forward and a backward of each model, on Gorgonia's machine and
// here.
func BenchmarkModelsOfGorgonias(b *testing.B) {
	for name, build := range map[string]func() model{
		"lstm": lstm, "convnet": func() model { return convnet(false, 8, 28) }, "batchnorm": func() model { return convnet(true, 8, 28) },
	} {
		b.Run("net="+name+"/on=tape", func(b *testing.B) {
			m := build()
			_, err := gorgonia.Grad(m.loss, m.params...)
			require.NoError(b, err)
			for k, a := range m.batch(rng(1)) {
				require.NoError(b, gorgonia.Let(m.data[k], theirValue(a)))
			}
			vm := gorgonia.NewTapeMachine(m.loss.Graph(), gorgonia.BindDualValues(m.params...))
			defer vm.Close() //nolint:errcheck // it holds nothing
			for b.Loop() {
				require.NoError(b, vm.RunAll())
				vm.Reset()
			}
		})
		b.Run("net="+name+"/on=weft", func(b *testing.B) {
			m := build()
			f, err := From(m.inputs(), []node{m.loss})
			require.NoError(b, err)
			params, err := FromParams(m.params...)
			require.NoError(b, err)
			var in []*autodiff.Tensor
			for _, a := range m.batch(rng(1)) {
				in = append(in, a.tensor(device.Float64))
			}
			in = append(in, params...)
			for b.Loop() {
				_, err := autodiff.Backward(f.Call(in...))
				require.NoError(b, err)
			}
		})
	}
}
