package cpu_test

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/kerneltest"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/cpu"
)

func TestTheCPUBackendOnTheHost(t *testing.T) {
	kerneltest.Run(t, func(*testing.T) device.Device { return device.Host() })
}

func TestTheCPUBackendOnASimulatedDevice(t *testing.T) {
	kerneltest.RunFew(t, func(*testing.T) device.Device { return device.NewSim(device.SimConfig{Index: 3}) }) // the bodies are the host's
}

// bytesSource draws random choices from fuzzed bytes, and from a generator seeded with them when
// they end.
type bytesSource struct {
	left []byte
	then *rand.PCG
}

func (s *bytesSource) Uint64() uint64 {
	if len(s.left) == 0 {
		return s.then.Uint64()
	}
	b := s.left[0]
	s.left = s.left[1:]
	return uint64(b)<<56 | uint64(b)<<20 // rand looks at the high bits and, for some, at the low ones
}

func FuzzInstructionsAgreeWithTheOracle(f *testing.F) {
	families := kerneltest.Families()
	for k := range families {
		f.Add([]byte{byte(k), 1, 2, 3, 4})
	}
	f.Add([]byte{200, 9, 99, 3})
	f.Add([]byte{255, 9, 99, 3})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 {
			return
		}
		r := rand.New(&bytesSource{data[1:], rand.NewPCG(uint64(len(data)), uint64(data[0]))})
		if data[0] == 255 {
			kerneltest.CheckRoutine(t, device.Host(), r, r.IntN(12))
			return
		}
		if int(data[0]) >= len(families) {
			kerneltest.CheckWild(t, device.Host(), r)
			return
		}
		i, in := kerneltest.Case(r, families[data[0]])
		kerneltest.Check(t, device.Host(), i, in...)
	})
}

type unheardOf struct{ kernels.Unary }

func TestPrepareRefusesWhatItCannotRun(t *testing.T) {
	var b cpu.Backend
	require.Equal(t, "cpu", b.Name())
	x := kernels.Type{Dtype: device.Float32, Shape: device.Shape{2}}
	_, err := b.Prepare(unheardOf{}, []kernels.Type{x})
	require.ErrorIs(t, err, kernels.ErrNoBackend)
	_, err = b.Prepare(nil, nil)
	require.ErrorIs(t, err, kernels.ErrOperands)
	_, err = b.Prepare(kernels.Binary{}, []kernels.Type{x})
	require.ErrorIs(t, err, kernels.ErrOperands)
}

func TestOneKernelRunsConcurrentlyOnDifferentBuffers(t *testing.T) {
	d := device.Host()
	for _, shapes := range [][2]device.Shape{{{20, 30}, {1, 30}}, {{20, 30}, {20, 1}}} {
		k, err := cpu.Backend{}.Prepare(kernels.Binary{Fn: kernels.Mul}, []kernels.Type{f32(shapes[0]...), f32(shapes[1]...)})
		require.NoError(t, err)
		var wg sync.WaitGroup
		for n := range 4 {
			wg.Go(func() {
				var bufs []*device.Buffer
				for _, s := range []device.Shape{{20, 30}, shapes[0], shapes[1]} {
					b, err := d.Alloc(f32(s...).Bytes())
					assert.NoError(t, err)
					raw, _ := b.Host()
					for j := range device.As[float32](raw) {
						device.As[float32](raw)[j] = float32(n)
					}
					bufs = append(bufs, b)
				}
				for range 50 {
					assert.NoError(t, k.Run(bufs[:1], bufs[1:]))
				}
				raw, _ := bufs[0].Host()
				for _, v := range device.As[float32](raw) {
					assert.Equal(t, float32(n*n), v)
				}
				for _, b := range bufs {
					assert.NoError(t, b.Release())
				}
			})
		}
		wg.Wait()
	}
}
