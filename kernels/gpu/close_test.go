package gpu

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/kernels"
	backends "github.com/weft-project/weft/kernels/backend"
)

// strict is an idle driver that sees the launch of a kernel whose module was unloaded.
type strict struct {
	idle
	loads, late atomic.Int64
}

func (d *strict) Load([]byte) (cuda.Module, error) {
	d.loads.Add(1)
	return &strictModule{of: d}, nil
}
func (d *strict) Stream() (cuda.Stream, error) { return &strictStream{of: d}, nil }

type strictModule struct {
	of   *strict
	gone atomic.Bool
}

func (m *strictModule) Func(string, int) (cuda.Func, error) { return strictFunc{m}, nil }
func (m *strictModule) Unload() error {
	m.of.loads.Add(-1)
	m.gone.Store(true)
	return nil
}

type strictFunc struct{ m *strictModule }

func (strictFunc) Name() string { return "strict" }

type strictStream struct {
	idleStream
	of *strict
}

func (s *strictStream) Run(l *cuda.List) error {
	for _, x := range l.Launches {
		if x.Func.(strictFunc).m.gone.Load() {
			s.of.late.Add(1)
		}
	}
	return nil
}

func (s *strictStream) Replay(cuda.Graph) error { return nil }

func TestNothingIsLaunchedOnceItsKernelsAreUnloaded(t *testing.T) {
	for range 20 {
		driver := &strict{}
		d, err := On(driver, device.CUDA(0))
		require.NoError(t, err)
		back, err := backends.For(d)
		require.NoError(t, err)
		long, short := chain(t, d, 8), chain(t, d, 1)
		var all sync.WaitGroup
		began := make(chan struct{}, 3)
		var closed atomic.Bool
		for n, run := range []func(b *device.Buffer) error{
			func(b *device.Buffer) error { return long.Run([]*device.Buffer{b}) },
			func(b *device.Buffer) error { return short.Run([]*device.Buffer{b}) },
			func(b *device.Buffer) error {
				k, err := back.Prepare(kernels.Softmax{}, []kernels.Type{{Dtype: device.Float32, Shape: device.Shape{12}}})
				if err == nil {
					other := operand(t, d, 0, 0, 0, 0)
					defer other.Release() //nolint:errcheck // ours
					err = k.Run([]*device.Buffer{b}, []*device.Buffer{other})
				}
				return err
			},
		} {
			b := operand(t, d, float32(n), 0, 0, 0)
			all.Go(func() {
				began <- struct{}{}
				err := run(b)
				for later := 0; err == nil && later < 1000; {
					if err = run(b); closed.Load() {
						later++
					}
				}
				assert.ErrorIs(t, err, device.ErrClosed)
			})
		}
		for range cap(began) {
			<-began
		}
		require.NoError(t, d.Memory().Close(), "the memory itself: the device waits for its buffers")
		closed.Store(true)
		all.Wait()
		require.Zero(t, driver.late.Load())
		require.Zero(t, driver.loads.Load(), "nothing is loaded behind")
	}
}
