package device_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/devicetest"
)

func TestTheHostKeepsTheContract(t *testing.T) {
	devicetest.Run(t, func(*testing.T) device.Device { return device.Host() })
}

func TestASimulatedAcceleratorKeepsTheContract(t *testing.T) {
	devicetest.Run(t, func(*testing.T) device.Device { return device.NewSim(device.SimConfig{Index: 3}) })
}

func TestOnlyTheHostShowsItsBytes(t *testing.T) {
	sim := device.NewSim(device.SimConfig{})
	for _, d := range []device.Launcher{device.Host(), sim} {
		b, err := d.Alloc(8)
		require.NoError(t, err)
		_, err = b.Host()
		if d == sim {
			require.ErrorIs(t, err, device.ErrNotHost)
		} else {
			require.NoError(t, err)
		}
		require.NoError(t, b.Release())
		_, err = b.Host()
		require.Error(t, err)
	}
}

func TestACodeOnADeviceSeesTheBuffersOfThatDeviceOnly(t *testing.T) {
	a, b := device.NewSim(device.SimConfig{}), device.NewSim(device.SimConfig{Index: 1})
	x, err := a.Alloc(4)
	require.NoError(t, err)
	y, err := b.Alloc(4)
	require.NoError(t, err)
	ran := false
	require.ErrorIs(t, a.Launch([]*device.Buffer{x, y}, func([][]byte) error { ran = true; return nil }), device.ErrElsewhere)
	require.False(t, ran)
	require.NoError(t, a.Launch([]*device.Buffer{x, x}, func(mem [][]byte) error { mem[0][0] = 7; return nil }))
	got := make([]byte, 1)
	require.NoError(t, a.Download(got, x, 0))
	require.Equal(t, byte(7), got[0])
	require.NoError(t, x.Release())
	require.ErrorIs(t, a.Launch([]*device.Buffer{x}, func([][]byte) error { return nil }), device.ErrReleased)
	require.NoError(t, y.Release())
}

func TestAFullDeviceRefusesAndServesAgainAfterARelease(t *testing.T) {
	d := device.NewSim(device.SimConfig{Bytes: 100})
	b, err := d.Alloc(80)
	require.NoError(t, err)
	_, err = d.Alloc(21)
	require.ErrorIs(t, err, device.ErrMemory)
	require.NoError(t, b.Release())
	b, err = d.Alloc(100)
	require.NoError(t, err)
	require.NoError(t, b.Release())
}

func TestConcurrentAllocationsNeverExceedTheDevicesSize(t *testing.T) {
	d := device.NewSim(device.SimConfig{Bytes: 1000})
	var got atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 100 {
				if b, err := d.Alloc(300); err == nil {
					got.Add(1)
					require.LessOrEqual(t, d.Stats().Live, int64(3))
					require.NoError(t, b.Release())
				}
			}
		})
	}
	wg.Wait()
	require.Positive(t, got.Load())
	require.Zero(t, d.Stats().LiveBytes)
}

func TestASizeThatNoMachineHasIsRefused(t *testing.T) {
	for _, n := range []int{1 << 50, math.MaxInt} {
		_, err := device.Host().Alloc(n)
		require.ErrorIs(t, err, device.ErrMemory)
	}
}

func TestADisownedBufferOfAnAcceleratorGoesBackWhenItIsUnreachable(t *testing.T) {
	d := device.NewSim(device.SimConfig{})
	func() {
		b, err := d.Alloc(1000)
		require.NoError(t, err)
		b.Disown()
	}()
	require.Eventually(t, func() bool { runtime.GC(); return d.Stats().PooledBytes > 0 }, 10*time.Second, time.Millisecond)
}

func TestAClosedDeviceAllocatesNothingAndKeepsWhatIsAlive(t *testing.T) {
	d := device.NewSim(device.SimConfig{})
	b, err := d.Alloc(8)
	require.NoError(t, err)
	require.NoError(t, d.Close())
	_, err = d.Alloc(8)
	require.ErrorIs(t, err, device.ErrClosed)
	require.NoError(t, d.Upload(b, 0, []byte{1}))
	require.NoError(t, b.Release())
	require.Zero(t, d.Stats().PooledBytes)
}

func TestIDsParseAndPrint(t *testing.T) {
	for text, id := range map[string]device.ID{"cpu": {}, "cuda:0": device.CUDA(0), "sim:1": device.Sim(1), "cuda:65535": device.CUDA(65535)} {
		got, err := device.Parse(text)
		require.NoError(t, err)
		require.Equal(t, id, got)
		require.Equal(t, text, id.String())
	}
	got, err := device.Parse("cuda")
	require.NoError(t, err)
	require.Equal(t, device.CUDA(0), got)
	for _, bad := range []string{"", "gpu:0", "cpu:1", "cuda:", "cuda:-1", "cuda:65536", "sim:x", "cuda:0:1", "CPU", "cuda:99999999999999999999"} {
		_, err := device.Parse(bad)
		require.ErrorIs(t, err, device.ErrBadID, bad)
		require.ErrorContains(t, err, fmt.Sprintf("%q", bad))
	}
	raw, err := json.Marshal(device.Map{device.Sim(0): device.CUDA(1)})
	require.NoError(t, err)
	require.JSONEq(t, `{"sim:0":"cuda:1"}`, string(raw))
}

func FuzzParsingAnID(f *testing.F) {
	f.Add("cuda:1")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := device.Parse(s)
		if err != nil {
			return
		}
		again, err := device.Parse(id.String())
		require.NoError(t, err)
		require.Equal(t, id, again)
	})
}

func TestDtypesKnowTheirGoTypes(t *testing.T) {
	type celsius float32
	type count int64
	require.Equal(t, device.Float32, device.DtypeOf[float32]())
	require.Equal(t, device.Float64, device.DtypeOf[float64]())
	require.Equal(t, device.Int32, device.DtypeOf[int32]())
	require.Equal(t, device.Int64, device.DtypeOf[int64]())
	require.Equal(t, device.Float32, device.DtypeOf[celsius]())
	require.Equal(t, device.Int64, device.DtypeOf[count]())
	require.False(t, device.Dtype(0).Valid())
	require.Zero(t, device.Dtype(200).Size())
	x := []float64{1, math.Pi}
	require.Equal(t, x, device.As[float64](device.Bytes(x)))
	require.Empty(t, device.As[int32](nil))
}

func TestShapesThatCannotBeAreRefused(t *testing.T) {
	for _, good := range []device.Shape{nil, {}, {0}, {3, 0, 5}, {1, 1, 1}} {
		require.NoError(t, good.Check(), "%v", good)
	}
	for _, bad := range []device.Shape{{-1}, {1 << 40, 1 << 40}, {0, 1 << 40, 1 << 40}, make(device.Shape, device.MaxRank+1)} {
		require.ErrorIs(t, bad.Check(), device.ErrBadShape, "%v", bad)
	}
	require.Equal(t, 1, device.Shape(nil).Elems())
	require.Equal(t, "(2, 3)", device.Shape{2, 3}.String())
}

func TestASetKnowsItsDevicesAndAlwaysTheHost(t *testing.T) {
	sim := device.NewSim(device.SimConfig{Index: 2})
	s, err := device.NewSet(sim)
	require.NoError(t, err)
	require.Equal(t, []device.ID{{}, device.Sim(2)}, s.IDs())
	_, err = s.Get(device.CUDA(0))
	require.ErrorIs(t, err, device.ErrNoDevice)
	require.ErrorContains(t, err, "[cpu sim:2]")
	_, err = device.NewSet(sim, device.NewSim(device.SimConfig{Index: 2}))
	require.ErrorContains(t, err, "given twice")
	var zero device.Set
	d, err := zero.Get(device.ID{})
	require.NoError(t, err)
	require.Equal(t, device.Host(), d)
}

func TestAMapsReverseTakesEveryTensorBack(t *testing.T) {
	all := []device.ID{{}, device.Sim(0), device.Sim(1), device.Sim(2)}
	for range 1000 { // random maps; the valid ones are one-to-one, so their reverse undoes them
		m := device.Map{}
		for range rand.IntN(5) {
			m[all[rand.IntN(4)]] = all[rand.IntN(4)]
		}
		if m.Validate(all, all) != nil {
			continue
		}
		require.NoError(t, m.Reverse().Validate(all, all), "%v", m)
		for src := range m {
			dst, err := m.Target(src)
			require.NoError(t, err)
			back, err := m.Reverse().Target(dst)
			require.NoError(t, err)
			require.Equal(t, src, back, "%v", m)
		}
	}
}

func TestAnInvalidMapReportsEveryViolation(t *testing.T) {
	here, there := []device.ID{{}, device.Sim(0), device.Sim(1)}, []device.ID{{}, device.Sim(5)}
	m := device.Map{device.Sim(0): device.Sim(5), device.Sim(1): device.Sim(5), device.Sim(7): device.Sim(8)}
	err := m.Validate(here, there)
	require.ErrorIs(t, err, device.ErrBadMap)
	for _, part := range []string{
		"sim:0 and sim:1 both map to sim:5", "source sim:7 does not exist here; there are [cpu sim:0 sim:1]",
		"target sim:8 does not exist at the peer; it has [cpu sim:5]",
	} {
		require.ErrorContains(t, err, part)
	}
	require.NoError(t, device.Map{device.Sim(0): {}, {}: device.Sim(5)}.Validate(here, there))
	require.NoError(t, device.Map(nil).Validate(here, there))
}

func TestAnUnmappedAcceleratorIsAnErrorThatNamesTheMap(t *testing.T) {
	m := device.Map{device.Sim(0): device.Sim(1)}
	_, err := m.Target(device.Sim(3))
	require.ErrorIs(t, err, device.ErrBadMap)
	require.ErrorContains(t, err, "sim:3 in {sim:0→sim:1}")
	cpu, err := m.Target(device.ID{})
	require.NoError(t, err)
	require.Equal(t, device.ID{}, cpu)
}
