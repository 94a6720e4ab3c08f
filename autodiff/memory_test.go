package autodiff

import (
	"errors"
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

// fitted is a function that runs out of memory for a large batch.
type fitted struct {
	name  string
	grads bool
	body  any
	in    func(n int) []*Tensor // the batch, and parameters from the one of this index on
	param int
}

// run calls the function with n of the rows of a batch, and goes back, on a device of so many
// bytes. As much is taken as the inputs of all would take.
func (f fitted) run(t *testing.T, k gputest.Kind, memory, n, all int) error {
	dev := k.Make(t, 0, memory)
	arena := NewArena("batch")
	defer arena.Free()
	_, size := device.Room(dev) // a simulated device does not count what To makes
	rest := 0
	for _, x := range f.in(all) {
		rest += size(x.Type().Bytes())
	}
	var in []*Tensor
	for j, x := range f.in(n) {
		x = To(x, dev)
		require.NoError(t, errors.Join(x.Err(), arena.Adopt(x)))
		if f.grads && j >= f.param {
			x.RequireGrad()
		}
		in = append(in, x)
	}
	free, _ := device.Room(dev)
	for rest += int(free) - memory; rest > 0; {
		b, err := dev.Alloc(min(rest, 256))
		require.NoError(t, err)
		defer func() { require.NoError(t, b.Release()) }()
		rest -= size(b.Len())
	}
	y := Define("step", f.body).Call(in...)
	if y.Err() != nil || !f.grads {
		return y.Err()
	}
	grads, err := Backward(y)
	if err == nil {
		grads.Free()
	}
	return err
}

func TestWhereAFunctionRunsOutOfMemoryTheErrorSaysWhichBatchWouldHaveFitted(t *testing.T) {
	const row, hidden, classes = 32, 64, 16
	layers := func(g *Graph, x, w node) node {
		for range 3 {
			x = g.Tanh(g.MatMul(x, w))
		}
		return g.Sum(x)
	}
	one := func(n int) []*Tensor {
		return []*Tensor{Zeros(device.Float32, n, row), Zeros(device.Float32, row, row)}
	}
	network := func(g *Graph, x, labels, w, a, v, b node) node {
		return g.CrossEntropy(g.Add(g.MatMul(g.GELU(g.Add(g.MatMul(x, w), a)), v), b), labels)
	}
	two := func(n int) []*Tensor {
		return []*Tensor{
			Zeros(device.Float32, n, row), Zeros(device.Int64, n), Zeros(device.Float32, row, hidden), Zeros(device.Float32, hidden),
			Zeros(device.Float32, hidden, classes), Zeros(device.Float32, classes),
		}
	}
	gputest.Each(t, func(t *testing.T, k gputest.Kind) {
		for _, f := range []fitted{
			{"looked at", false, layers, one, 1}, {"layers", true, layers, one, 1}, {"a network", true, network, two, 2},
		} {
			const all = 400
			exact, failed := k.Name == "sim", 0 // there kernels work in nothing
			for memory := 1 << 20; failed < 4 && (exact || failed < 2) && memory > 1<<16; memory = memory * 13 / 16 &^ 255 {
				err := f.run(t, k, memory, all, all)
				if err == nil {
					continue
				}
				var e *device.MemoryError
				require.ErrorAs(t, err, &e, f.name)
				if e.Batch == nil {
					require.ErrorIs(t, f.run(t, k, memory, 1, all), device.ErrMemory, "%s: %v", f.name, err)
					break
				}
				failed++
				n := e.Batch.Fits
				require.Equal(t, device.Batch{Had: all, Fits: n, Backward: f.grads}, *e.Batch, f.name)
				require.NoError(t, f.run(t, k, memory, n, all), "%s: %d", f.name, n)
				if !exact {
					n += n / 4
				}
				require.ErrorIs(t, f.run(t, k, memory, min(n+1, all), all), device.ErrMemory, "%s: %d of %d", f.name, n, e.Batch.Fits)
			}
			require.Positive(t, failed, f.name)
		}
	})
}

func TestABatchIsWhatInputsHaveInCommonAndABodyTakesInOtherSizes(t *testing.T) {
	const b, row = 30, 64
	x, table, square := Zeros(device.Float32, b, row), Zeros(device.Float32, 50, row), Zeros(device.Float32, row, row)
	ids, many := Zeros(device.Int64, b), Zeros(device.Int64, 4*b)
	softs := func(g *Graph, x node) node { return g.Softmax(g.Exp(g.Softmax(x, 1)), 1) }
	some := func(t *testing.T, e *device.MemoryError) {
		require.NotNil(t, e.Batch, "%v", e)
		require.Equal(t, b, e.Batch.Had)
		require.Positive(t, e.Batch.Fits)
		require.ErrorContains(t, e, fmt.Sprintf("; this call would have fitted with batch %d in place of 30, with all else that is held as it is;", e.Batch.Fits))
	}
	none := func(t *testing.T, e *device.MemoryError) { require.Nil(t, e.Batch) }
	for name, c := range map[string]struct {
		check func(*testing.T, *device.MemoryError)
		room  int // bytes beside the inputs
		body  any
		in    []*Tensor
		param *Tensor // of in
	}{
		"one input":        {some, b * row * 2, softs, []*Tensor{x}, nil},
		"ids, no table":    {some, b * row * 2, func(g *Graph, table, ids node) node { return softs(g, g.Embedding(table, ids)) }, []*Tensor{table, ids}, nil},
		"the second input": {some, b * row * 2, func(g *Graph, m, x node) node { return softs(g, g.MatMul(x, m)) }, []*Tensor{square, x}, nil},
		"labels of all rows": {some, b * row * 2, func(g *Graph, x, many node) node {
			return g.Add(softs(g, x), g.CrossEntropy(g.Reshape(x, -1, row/4), many))
		}, []*Tensor{x, many}, nil},
		"not even one":  {none, 100, func(g *Graph, x, m node) node { return g.Add(x, g.Sum(g.Softmax(m, 1), 0)) }, []*Tensor{x, square}, nil},
		"no other size": {none, b * row * 2, func(g *Graph, x node) node { return softs(g, g.Reshape(x, b, row)) }, []*Tensor{x}, nil},
		"one row":       {none, b * row * 2, softs, []*Tensor{Zeros(device.Float32, 1, b*row)}, nil},
		"of no use":     {none, row * row * 2, func(g *Graph, ids, m node) node { return softs(g, m) }, []*Tensor{ids, square}, square},
		"a bias of as many": {none, 8, func(g *Graph, x, bias node) node { return softs(g, g.Add(x, bias)) },
			[]*Tensor{Zeros(device.Float32, 2, 2), Zeros(device.Float32, 2)}, nil},
		"frozen weights of as many classes": {none, 50*b*4 - 4,
			func(g *Graph, x, table node) node { return softs(g, g.MatMul(x, g.Transpose(table, 1, 0))) }, []*Tensor{x, table}, nil},
		"one op":      {none, b * row * 2, softs, []*Tensor{x}, nil},
		"a parameter": {none, b * row * 2, softs, []*Tensor{x}, x},
	} {
		t.Run(name, func(t *testing.T) {
			dev, in := device.NewSim(device.SimConfig{Bytes: 1 << 20}), make([]*Tensor, len(c.in))
			for k, x := range c.in {
				if in[k] = To(x, dev); x == c.param {
					in[k].RequireGrad()
				}
				require.NoError(t, in[k].Err())
			}
			rest, err := dev.Alloc(1<<20 - c.room) // what To makes is nobody's, which does not count
			require.NoError(t, err)
			defer func() { require.NoError(t, rest.Release()) }()
			y := Define("f", c.body).Call(in...)
			if name == "one op" {
				y = Softmax(in[0], 1)
			}
			var e *device.MemoryError
			require.ErrorAs(t, y.Err(), &e)
			c.check(t, e)
		})
	}
}

func TestWhoHoldsMemoryIsKnownAtAnyTime(t *testing.T) {
	dev := gputest.GPU(t, 0, ptx.Config{})
	x := To(New(make([]float32, 100)), dev)
	held, line := device.Held(dev), lineHere(-1)
	require.Equal(t, []device.Holding{{At: line, By: "autodiff.To", Bytes: 512, Blocks: 1}}, held)
	runtime.KeepAlive(x)
	require.Nil(t, device.Held(device.Host()))
}
