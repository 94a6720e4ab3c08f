package gpumem_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/devicetest"
	"github.com/weft-project/weft/internal/gpumem"
	"github.com/weft-project/weft/internal/ptx"
)

func TestAGPUIsADevice(t *testing.T) {
	for name, c := range map[string]ptx.Config{"at once": {}, "late": {Late: rand.New(rand.NewPCG(1, 2))}} {
		t.Run(name, func(t *testing.T) {
			g, err := gpumem.NewGPU(ptx.New(c))
			require.NoError(t, err)
			d := device.Over(device.CUDA(0), g, 0)
			defer func() { require.NoError(t, d.Close()) }()
			devicetest.Run(t, func(*testing.T) device.Device { return d })
		})
	}
}

// words writes the fault record word by word, as a kernel does that found something wrong, at whose
// end it returns.
type words struct {
	g     *gpumem.GPU
	from  uintptr
	order []uintptr
}

func (words) Flag() uint8 { return 0 }

func (w words) Submit(s cuda.Stream, _ uint64) error {
	var err error
	for _, k := range w.order {
		err = errors.Join(err, s.Copy(w.g.FaultAddr()+8*k, w.from+8*k, 8))
	}
	return err
}

func TestAFaultIsToldWholeToWhoDependsOnItAndToAllWhoAskedOfTheWholeGPU(t *testing.T) {
	for seed := range uint64(40) {
		var c ptx.Config
		if seed > 0 {
			c.Late = rand.New(rand.NewPCG(seed, 2))
		}
		g, err := gpumem.NewGPU(ptx.New(c))
		require.NoError(t, err)
		d := device.Over(device.CUDA(0), g, 0)
		want := gpumem.Fault{Code: 7, Value: -3, At: 5, N: 11}
		from, err := g.Take(gpumem.FaultBytes)
		require.NoError(t, err)
		at := int64(want.At)
		require.NoError(t, g.Upload(from, device.Bytes([]int64{int64(want.Code), want.Value, ^at, want.N})))
		require.NoError(t, g.Sync(), "nobody knows that a kernel reads it")
		out, err := d.Alloc(8)
		require.NoError(t, err)
		other, err := d.Alloc(8)
		require.NoError(t, err)
		meet := func() {
			require.NoError(t, g.Run(words{g, from, []uintptr{0, 3, 2, 1}}, &gpumem.Use{Access: []gpumem.Access{gpumem.Write}, Faults: true}, []*device.Buffer{out}, nil))
		}
		var fault *gpumem.FaultError
		meet()
		waits := make([]func() error, 3)
		for k := range waits {
			waits[k], err = g.Check()
			require.NoError(t, err)
		}
		got := make([]byte, 8)
		require.NoError(t, d.Download(got, other, 0), "seed %d: it has nothing to do with it, also where it finds it", seed)
		for range 2 {
			require.ErrorAs(t, d.Download(got, out, 0), &fault, "seed %d: who depends on it hears it, whoever heard it before", seed)
			require.Equal(t, want, fault.Fault, "seed %d: not a part of it", seed)
			require.ErrorAs(t, d.Check(other, out), &fault)
		}
		for _, wait := range waits {
			require.ErrorAs(t, wait(), &fault, "seed %d: who asked before it was told hears it", seed)
			require.Equal(t, want, fault.Fault, "seed %d", seed)
		}
		require.NoError(t, d.Check(), "seed %d: of the whole GPU it is told once", seed)
		require.NoError(t, d.Upload(out, 0, got[:4]))
		require.ErrorAs(t, d.Known(other, out), &fault, "a part of it is what it was")
		require.NoError(t, d.Upload(out, 0, got))
		require.NoError(t, d.Known(other, out))
		require.NoError(t, d.Download(got, out, 0), "it is something else now")
		meet()
		require.ErrorAs(t, g.Download(nil, from), &fault, "also where no bytes are asked for")
		g.Give(from, gpumem.FaultBytes)
		require.NoError(t, errors.Join(out.Release(), other.Release(), d.Close()))
	}
}
