package collective

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective/internal/narrow"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/internal/thresholds"
	"github.com/weft-project/weft/rpc"
)

// bufferOf is a buffer on a device; the caller releases it.
func bufferOf(dev device.Device, mem []byte) (*device.Buffer, error) {
	b, err := dev.Alloc(len(mem))
	if err == nil {
		err = dev.Upload(b, 0, mem)
	}
	return b, err
}

func contents(b *device.Buffer) ([]byte, error) {
	mem := make([]byte, b.Len())
	return mem, b.Device().Download(mem, b, 0)
}

// reduceBuffers compares one reduction of several buffers with its definition.
func reduceBuffers[E Element](t *testing.T, gs []*Group, r *rand.Rand, lens []int, op Op) {
	size, d := len(gs), device.DtypeOf[E]()
	var in [][][]E // by buffer and rank
	for _, n := range lens {
		in = append(in, drawn[E](r, size, n))
	}
	sims := make([]device.Device, size)
	for k := range sims {
		sims[k] = device.NewSim(device.SimConfig{Index: k})
	}
	each(t, gs, func(r int) error {
		var bufs []*device.Buffer
		for i := range lens {
			b, err := bufferOf([]device.Device{device.Host(), sims[r]}[i%2], device.Bytes(in[i][r]))
			if err != nil {
				return err
			}
			defer b.Release() //nolint:errcheck // ours
			bufs = append(bufs, b)
		}
		out, err := gs[r].AllReduceBuffers(t.Context(), op, d, bufs...).Wait(t.Context())
		if err != nil {
			return err
		}
		for i, b := range out {
			got, err := contents(b)
			if err != nil {
				return err
			}
			if string(got) != string(device.Bytes(defined(op, in[i]))) {
				return fmt.Errorf("%v of buffer %d of %v %v is wrong", op, i, lens, d)
			}
		}
		return nil
	})
}

func TestBuffersAreReducedTogetherInPlaceOnAnyDevice(t *testing.T) {
	sizes := thresholds.Around(thresholds.Groups)
	gs := groups(t, rpctest.World(t, rpctest.Net(), 3), "g")
	for i := range 40 {
		r := rand.New(rand.NewPCG(4, uint64(i)))
		threshold, side := sizes.Next()
		lens := []int{threshold.Elems(4, side), 0, 1, 15 + r.IntN(3), 5000}[:1+r.IntN(5)]
		r.Shuffle(len(lens), func(i, k int) { lens[i], lens[k] = lens[k], lens[i] })
		op := []Op{Sum, Mean, Prod, Max, Min}[r.IntN(5)]
		switch i % 4 {
		case 0:
			reduceBuffers[float32](t, gs, r, lens, op)
		case 1:
			reduceBuffers[float64](t, gs, r, lens, op)
		case 2:
			reduceBuffers[int32](t, gs, r, lens, Sum)
		case 3:
			reduceBuffers[int64](t, gs, r, lens, Max)
		}
	}
}

func TestBuffersOfBFloat16AreReducedInFloat32AndRoundedOnce(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 3), "g")
	// 1 + 2⁻⁸ + 2⁻⁸ is 1 in bfloat16 where each sum is rounded. 256 + 1 + 2 = 259 lies between 258 and
	// 260, and goes to the even one.
	in := [][]float32{{1, 256, float32(math.Inf(1)), float32(math.NaN()), 3e38}, {1. / 256, 1, 1, 1, 3e38}, {1. / 256, 2, 1, 1, 0}}
	want := []string{"1.0078125", "260", "+Inf", "NaN", "+Inf"}
	each(t, gs, func(r int) error {
		mem := make([]byte, 2*len(in[r]))
		narrow.BFloat16.Write(mem, in[r], nil)
		b, err := bufferOf(device.Host(), mem)
		if err != nil {
			return err
		}
		defer b.Release() //nolint:errcheck // ours
		if _, err := gs[r].AllReduceBuffers(t.Context(), Sum, device.BFloat16, b).Wait(t.Context()); err != nil {
			return err
		}
		got, err := contents(b)
		sums := make([]float32, len(in[r]))
		narrow.BFloat16.Read(sums, got)
		for i, v := range sums {
			if fmt.Sprint(v) != want[i] {
				err = errors.Join(err, fmt.Errorf("element %d is %v; expected %s", i, v, want[i]))
			}
		}
		return err
	})
}

func TestBuffersOfBFloat16OfEverySizeAreReduced(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 3), "g")
	sizes := thresholds.Around(thresholds.Groups)
	for range sizes.Len() {
		at, side := sizes.Next()
		n := at.Elems(2, side)
		each(t, gs, func(r int) error {
			x, mem := make([]float32, n), make([]byte, 2*n)
			for i := range x {
				x[i] = float32((i + r) % 16)
			}
			narrow.BFloat16.Write(mem, x, nil)
			b, err := bufferOf(device.Host(), mem)
			if err != nil {
				return err
			}
			defer b.Release() //nolint:errcheck // ours
			if _, err := gs[r].AllReduceBuffers(t.Context(), Max, device.BFloat16, b).Wait(t.Context()); err != nil {
				return err
			}
			got, err := contents(b)
			narrow.BFloat16.Read(x, got)
			for i, v := range x {
				if want := float32(max(i%16, (i+1)%16, (i+2)%16)); v != want {
					return errors.Join(err, fmt.Errorf("element %d of %d is %v; expected %v", i, n, v, want))
				}
			}
			return err
		})
	}
}

func TestFuturesOfBuffersMatchInTheOrderOfTheirCallsAndMayBeAwaitedInAnother(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 2), "g")
	each(t, gs, func(r int) error {
		var futures []*rpc.Future[[]*device.Buffer]
		for i := range 20 {
			b, err := bufferOf(device.Host(), device.Bytes([]int32{int32(i), int32(r)}))
			if err != nil {
				return err
			}
			defer b.Release() //nolint:errcheck // ours
			futures = append(futures, gs[r].AllReduceBuffers(t.Context(), Sum, device.Int32, b))
		}
		for _, i := range rand.New(rand.NewPCG(uint64(r), 3)).Perm(len(futures)) {
			bufs, err := futures[i].Wait(t.Context())
			if err != nil {
				return err
			}
			got, err := contents(bufs[0])
			if err != nil {
				return err
			}
			if x := device.As[int32](got); x[0] != int32(2*i) || x[1] != 1 {
				return fmt.Errorf("sum %d is %v", i, x)
			}
		}
		return nil
	})
}

func TestBuffersThatCannotBeReducedFailOnAllAndStayAsTheyWere(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 3), "g")
	bad := map[string]func(r int, b *device.Buffer) (Op, device.Dtype, []*device.Buffer){
		"sizes": func(r int, b *device.Buffer) (Op, device.Dtype, []*device.Buffer) {
			if r == 1 {
				return Sum, device.Float32, []*device.Buffer{b}
			}
			return Sum, device.Float32, []*device.Buffer{b, b}
		},
		"dtypes": func(r int, b *device.Buffer) (Op, device.Dtype, []*device.Buffer) {
			return Sum, []device.Dtype{device.Float32, device.BFloat16, device.Float32}[r], []*device.Buffer{b}
		},
		"nil": func(r int, b *device.Buffer) (Op, device.Dtype, []*device.Buffer) {
			return Sum, device.Float32, []*device.Buffer{b, []*device.Buffer{b, nil, b}[r]}
		},
		"half an element": func(r int, b *device.Buffer) (Op, device.Dtype, []*device.Buffer) {
			return Sum, []device.Dtype{device.Float32, device.Float64, device.Float32}[r], []*device.Buffer{b}
		},
		"an operation": func(r int, b *device.Buffer) (Op, device.Dtype, []*device.Buffer) {
			return []Op{Sum, Xor, Sum}[r], device.Float32, []*device.Buffer{b}
		},
		"no dtype": func(r int, b *device.Buffer) (Op, device.Dtype, []*device.Buffer) {
			return Sum, []device.Dtype{device.Float32, device.Invalid, device.Float32}[r], []*device.Buffer{b}
		},
	}
	for name, fn := range bad {
		t.Run(name, func(t *testing.T) {
			each(t, gs, func(r int) error {
				b, err := bufferOf(device.Host(), device.Bytes([]float32{1, 2, float32(r)}))
				if err != nil {
					return err
				}
				defer b.Release() //nolint:errcheck // ours
				op, d, bufs := fn(r, b)
				_, err = gs[r].AllReduceBuffers(t.Context(), op, d, bufs...).Wait(t.Context())
				if !errors.Is(err, ErrMismatch) && !errors.Is(err, ErrAborted) && !errors.Is(err, ErrArguments) && !errors.Is(err, ErrOp) {
					return fmt.Errorf("it ended with %w", err)
				}
				got, err := contents(b)
				if err == nil && string(got) != string(device.Bytes([]float32{1, 2, float32(r)})) {
					err = errors.New("the buffer has changed")
				}
				return errors.Join(err, gs[r].Barrier(t.Context()))
			})
		})
	}
}

func TestWaitingForBuffersEndsWithItsContextAndTheOperationGoesOn(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 2), "g")
	var bufs [2]*device.Buffer
	for r := range bufs {
		var err error
		bufs[r], err = bufferOf(device.Host(), device.Bytes([]float32{2}))
		require.NoError(t, err)
		defer bufs[r].Release() //nolint:errcheck // ours
	}
	f := gs[0].AllReduceBuffers(t.Context(), Prod, device.Float32, bufs[0])
	c, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := f.Wait(c)
	require.ErrorIs(t, err, context.Canceled)
	_, err = gs[1].AllReduceBuffers(t.Context(), Prod, device.Float32, bufs[1]).Wait(t.Context())
	require.NoError(t, err)
	_, err = f.Wait(t.Context())
	require.NoError(t, err)
	got, err := contents(bufs[0])
	require.NoError(t, err)
	require.Equal(t, []float32{4}, device.As[float32](got))
}
