package autodiff

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/gputest"
	"github.com/weft-project/weft/internal/ptx"
)

// lineHere is the line of its caller, or some lines further.
func lineHere(further int) string {
	_, file, line, _ := runtime.Caller(1)
	return fmt.Sprintf("%s:%d", file, line+further)
}

func TestWhereMemoryRunsOutTheErrorSaysWhoHoldsItByLines(t *testing.T) {
	gputest.Each(t, func(t *testing.T, k gputest.Kind) {
		const memory = 4 << 20
		dev := k.Make(t, 0, memory)
		arena := NewArena("batch")
		defer arena.Free()
		double := Define("double", func(g *Graph, x node) node { return g.Exp(g.Add(x, x)) })
		x, at := To(New(make([]float32, 1<<16)), dev).RequireGrad(), lineHere(0) // 256 KiB
		require.NoError(t, arena.Adopt(x))
		var kept []*Tensor
		var line string
		for {
			var y *Tensor
			y, line = double.Call(x), lineHere(0)
			if y.Err() != nil {
				kept = append(kept, y)
				break
			}
			kept = append(kept, y)
		}
		var e *device.MemoryError
		err := kept[len(kept)-1].Err()
		require.ErrorAs(t, err, &e)
		require.ErrorIs(t, err, device.ErrMemory)
		require.Equal(t, int64(1<<18), e.Asked)
		require.Equal(t, device.Holding{At: line, By: "autodiff.(*Func).Call"}, e.By)
		require.Less(t, e.Free, int64(1<<18))
		require.Equal(t, int64(memory), e.Total)
		require.GreaterOrEqual(t, e.Used, int64((len(kept))<<18))
		require.Len(t, e.Holdings, 2)
		calls := e.Holdings[0]
		require.Equal(t, []string{line, "autodiff.(*Func).Call"}, []string{calls.At, calls.By})
		require.GreaterOrEqual(t, calls.Bytes, int64((len(kept)-1)<<18))
		require.GreaterOrEqual(t, calls.Blocks, len(kept)-1)
		require.Equal(t, device.Holding{At: at, By: "autodiff.To", Bytes: 1 << 18, Blocks: 1}, e.Holdings[1])
		require.ErrorContains(t, err, "held: "+calls.String())

		runtime.KeepAlive(kept)
		arena.Free()
		require.Empty(t, device.Held(dev), "what was released is nobody's")
		s := dev.Stats()
		require.Zero(t, s.UsedBytes)
		require.GreaterOrEqual(t, s.PeakBytes, int64(len(kept)<<18))
		require.LessOrEqual(t, s.PeakBytes, int64(memory+1<<18), "a simulated device does not count nobody's")
	})
}

func TestWhoHoldsMemoryIsKnownAtAnyTime(t *testing.T) {
	dev := gputest.GPU(t, 0, ptx.Config{})
	x := To(New(make([]float32, 100)), dev)
	held, line := device.Held(dev), lineHere(-1)
	require.Equal(t, []device.Holding{{At: line, By: "autodiff.To", Bytes: 512, Blocks: 1}}, held)
	runtime.KeepAlive(x)
	require.Nil(t, device.Held(device.Host()))
}
