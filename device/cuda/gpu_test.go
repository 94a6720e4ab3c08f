package cuda_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/device/cuda/ptx"
	"github.com/weft-project/weft/device/devicetest"
)

func TestAGPUIsADevice(t *testing.T) {
	for name, c := range map[string]ptx.Config{"at once": {}, "late": {Late: rand.New(rand.NewPCG(1, 2))}} {
		t.Run(name, func(t *testing.T) {
			g, err := cuda.NewGPU(ptx.New(c))
			require.NoError(t, err)
			d := device.Over(device.CUDA(0), g, 0)
			defer func() { require.NoError(t, d.Close()) }()
			devicetest.Run(t, func(*testing.T) device.Device { return d })
		})
	}
}

// meddler is a driver that does something else whenever a stream is told to wait: as another goroutine may.
type meddler struct {
	cuda.Driver
	now func()
}

func (m *meddler) Stream() (cuda.Stream, error) {
	s, err := m.Driver.Stream()
	return &meddled{s, m}, err
}

type meddled struct {
	cuda.Stream
	by *meddler
}

func (s *meddled) Wait(e cuda.Event) error {
	err := s.Stream.Wait(e)
	if now := s.by.now; now != nil {
		s.by.now = nil
		now()
	}
	return err
}

// Word by word, as a kernel writes its record: whoever copies that beside running kernels may see a part of it.
func TestAFaultThatIsFoundDuringADownloadIsToldWholeAndByTheNextOne(t *testing.T) {
	for seed := range uint64(12) {
		var c ptx.Config
		if seed > 0 {
			c.Late = rand.New(rand.NewPCG(seed, 2))
		}
		m := &meddler{Driver: ptx.New(c)}
		g, err := cuda.NewGPU(m)
		require.NoError(t, err)
		want := cuda.Fault{Code: 7, Value: -3, At: 5, N: 11}
		words, err := g.Take(cuda.FaultBytes)
		require.NoError(t, err)
		at := int64(want.At)
		require.NoError(t, g.Upload(words, device.Bytes([]int64{int64(want.Code), want.Value, ^at, want.N})))
		word := func(k uintptr) { require.NoError(t, g.Compute().Copy(g.FaultAddr()+8*k, words+8*k, 8)) }
		got := make([]byte, 100)
		m.now = func() { word(0); word(3) }
		require.NoError(t, g.Download(got[:cuda.FaultBytes], words), "seed %d: what came before was right", seed)
		word(2)
		word(1)
		var fault *cuda.FaultError
		require.ErrorAs(t, g.Download(got[:8], words), &fault)
		require.Equal(t, want, fault.Fault)
		require.NoError(t, g.Download(nil, words), "it is told once")
		word(0)
		require.ErrorAs(t, g.Download(nil, words), &fault, "also where no bytes are asked for")
		g.Give(words, cuda.FaultBytes)
		require.NoError(t, g.Close())
	}
}
