package gpumem_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/gpumem"
	"github.com/weft-project/weft/internal/ptx"
)

func TestAllWhoLookedBeforeAFaultIsToldOfHearItAndTheNextOneIsNotLost(t *testing.T) {
	for seed := range uint64(12) {
		var c ptx.Config
		if seed > 0 {
			c.Late = rand.New(rand.NewPCG(seed, 2))
		}
		g, err := gpumem.NewGPU(ptx.New(c))
		require.NoError(t, err)
		d := device.Over(device.CUDA(0), g, 0)
		meet := func(code uint64) {
			require.NoError(t, g.Upload(g.FaultAddr(), device.Bytes([]int64{int64(code), -1, ^2, 3})))
		}
		look := func() func() error {
			wait, err := g.Check()
			require.NoError(t, err)
			return wait
		}
		finds := func(code uint64, err error) {
			var fault *gpumem.FaultError
			require.ErrorAs(t, err, &fault)
			require.Equal(t, gpumem.Fault{Code: code, Value: -1, At: 2, N: 3}, fault.Fault)
		}
		require.NoError(t, look()())
		meet(1)
		first, second := look(), look()
		marked, err := g.Mark()
		require.NoError(t, err)
		require.NoError(t, marked(), "who only waits hears nothing, and takes it from nobody")
		finds(1, first())
		meet(2)
		finds(1, second())
		finds(2, look()())
		require.NoError(t, d.Check(), "it is told once")
		meet(3)
		err = d.Check()
		finds(3, err)
		require.ErrorContains(t, err, "cuda:0: check")
		require.NoError(t, d.Close())
	}
}

func BenchmarkLook(b *testing.B) {
	g, err := gpumem.NewGPU(ptx.New(ptx.Config{}))
	require.NoError(b, err)
	defer func() { require.NoError(b, g.Close()) }()
	for name, ask := range map[string]func() (func() error, error){"only wait": func() (func() error, error) { return g.Mark() }, "and look": func() (func() error, error) { return g.Check() }} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				wait, err := ask()
				if err != nil || wait() != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
