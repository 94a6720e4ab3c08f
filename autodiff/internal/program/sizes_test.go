//go:build !race

package program

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/kerneltest"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/internal/testgpu"
	"github.com/weft-project/weft/internal/thresholds"
	"github.com/weft-project/weft/kernels"
	backends "github.com/weft-project/weft/kernels/backend"
	"github.com/weft-project/weft/kernels/gpu"
)

// lowered is by how much less than on a GPU a value has a buffer of its own where tests run on an
// interpreter: from 1 KiB on, not from 16 MiB.
const lowered = 1 << 14

// ran is the results of a compiled unit, as values of the unit before.
func ran(t *testing.T, u *Unit, dev device.Device, b kernels.Backend, in []kerneltest.Tensor) []kerneltest.Tensor {
	t.Helper()
	p, err := Compile(u.clone(), b)
	require.NoError(t, err)
	bufs, out := make([]*device.Buffer, len(in)), make([]*device.Buffer, len(u.Results))
	for k, x := range in {
		bufs[k] = kerneltest.Upload(t, dev, x)
	}
	require.NoError(t, p.Run(dev, bufs, out))
	values := make([]kerneltest.Tensor, len(u.Types))
	for k, v := range u.Results {
		values[v] = kerneltest.Download(t, dev, p.Types()[k], out[k])
	}
	drop(t, append(bufs, out...))
	return values
}

func TestProgramsOnAGPUAreRightAroundTheSizeOfABufferOfTheirOwn(t *testing.T) {
	dev, err := gpu.On(testgpu.Open(t, ptx.Config{}), device.CUDA(0))
	require.NoError(t, err)
	defer func() { require.NoError(t, dev.Close()) }()
	b, err := backends.For(dev)
	require.NoError(t, err)
	cut, sizes := 0, thresholds.Around(thresholds.Lowered)
	for seed := range soak.Cases(15) {
		at, side := sizes.Next()
		at.Value /= lowered
		r := rand.New(rand.NewPCG(uint64(seed), 78))
		u := growSized(r, at.Elems(4, side))
		in := randomTensors(r, u)
		want := evaluate(t, u, in, interpret)
		if onEdge(u, want) {
			continue
		}
		own := recorder{b, at.Value}
		p, err := Compile(u.clone(), own)
		require.NoError(t, err)
		cut += len(p.parts) - min(1, len(p.parts))
		require.Empty(t, difference(u, u, want, ran(t, u, dev, own, in)), "seed %d", seed)
	}
	require.Positive(t, cut, "no program was cut at a buffer of its own")
	require.Empty(t, sizes.Missing())
}
