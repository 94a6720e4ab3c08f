package measure

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/bench/gpu/internal/places"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/ptxtest"
	"github.com/weft-project/weft/kernels/gpu"
)

// What is measured works on numbers that differ: a GPU is faster on constants.
func TestMemoryThatIsMeasuredIsFilledWithNoiseThatIsTheSameInEachRun(t *testing.T) {
	dev, err := gpu.On(ptxtest.New(ptx.Config{}), device.CUDA(0))
	require.NoError(t, err)
	const n = 1000
	var runs [2][][]byte
	for k := range runs {
		all, err := filled(dev, floats(n), floats(n))
		require.NoError(t, err)
		for _, x := range all {
			raw := make([]byte, 4*n)
			require.NoError(t, dev.Download(raw, x, 0))
			seen := map[string]bool{}
			for v := range slices.Chunk(raw, 4) {
				seen[string(v)] = true
			}
			require.Greater(t, len(seen), n-10, "they are not constants")
			runs[k] = append(runs[k], raw)
		}
		require.NoError(t, all.release())
	}
	require.Equal(t, runs[0], runs[1])
	require.NotEqual(t, runs[0][0], runs[0][1])
	require.Zero(t, dev.Stats().LiveBytes)
	require.NoError(t, dev.Close())
}

// counting is a driver that is counted while it is open.
type counting struct {
	cuda.Driver
	open *int
}

func (d counting) Close() error {
	*d.open--
	return d.Driver.Close()
}

// The context of a GPU ends with the last driver of a process, and comes again with the next;
// cuBLASLt outlives it.
func TestTheGPUIsHeldFromTheFirstBenchmarkToTheLast(t *testing.T) {
	var out bytes.Buffer
	open, opened := 0, 0
	b := &bench{at: places.Interpreter, rounds: 1, out: json.NewEncoder(&out)}
	b.ready()
	b.open = func() (cuda.Driver, error) {
		require.Equal(t, opened > 0, open > 0, "a driver was open since the first one")
		open, opened = open+1, opened+1
		return counting{ptxtest.New(ptx.Config{}), &open}, nil
	}
	require.NoError(t, b.cases(t.Context(), []string{"copy", "product", "launch"}))
	require.Zero(t, open)
	require.Equal(t, 1+1+4+2, opened)
	require.NotContains(t, out.String(), `"error"`)
}
