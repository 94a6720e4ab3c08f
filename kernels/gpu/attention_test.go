package gpu

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda/ptx"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/kerneltest"
)

func TestAttentionAgreesWithItsDefinition(t *testing.T) {
	d := on(t, ptx.New(ptx.Config{Races: true}))
	r := rand.New(rand.NewPCG(8, 8))
	for range 25 {
		for _, family := range []string{"Attention", "AttentionGrad", "ViewedAttention"} {
			i, in := kerneltest.Case(r, family)
			kerneltest.Check(t, d, i, in...)
		}
	}
}

func TestHeadsThatAreTooLargeAreRefused(t *testing.T) {
	b, err := kernels.For(on(t, ptx.New(ptx.Config{})))
	require.NoError(t, err)
	q := kernels.Type{Dtype: device.Float64, Shape: device.Shape{1, 1, 1, 5000}}
	_, err = b.Prepare(kernels.Attention{}, []kernels.Type{q, q, q})
	require.ErrorIs(t, err, kernels.ErrOperands)
	require.ErrorContains(t, err, "5000 numbers")
}
