package collective

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/internal/thresholds"
	"github.com/weft-project/weft/transport"
)

// reduced compares a new buffer on all members with the definition, bit for bit.
func reduced[E Element](t *testing.T, gs []*Group, r *rand.Rand, n int, op Op) {
	d := device.DtypeOf[E]()
	in := drawn[E](r, len(gs), n)
	want := defined(op, in)
	bufs := make([]*device.Buffer, len(gs))
	for i := range gs {
		bufs[i] = hostBuffer(t, device.Bytes(in[i]))
	}
	each(t, gs, func(i int) error {
		out, err := gs[i].AllReduced(t.Context(), op, d, bufs[i])
		if err != nil {
			return err
		}
		got, err := out.Host()
		if err == nil && !bytes.Equal(device.Bytes(want), got) {
			err = fmt.Errorf("%v of %d %v on rank %d of %d is not its definition", op, n, d, i, len(gs))
		}
		return errors.Join(err, out.Release())
	})
	out := clones(in)
	each(t, gs, func(i int) error { return AllReduce(t.Context(), gs[i], out[i], op) })
	for i := range gs {
		require.True(t, bytes.Equal(device.Bytes(want), device.Bytes(out[i])), "%v of %d %v in place", op, n, d)
		require.True(t, bytes.Equal(device.Bytes(in[i]), bytesOf(t, bufs[i])), "what is given stays as it is")
		require.NoError(t, bufs[i].Release())
	}
}

func hostBuffer(t *testing.T, b []byte) *device.Buffer {
	buf, err := device.Host().Alloc(len(b))
	require.NoError(t, err)
	require.NoError(t, device.Host().Upload(buf, 0, b))
	return buf
}

func bytesOf(t *testing.T, b *device.Buffer) []byte {
	mem, err := b.Host()
	require.NoError(t, err)
	return append([]byte{}, mem...)
}

func TestSumsOfBuffersAreTheirDefinitionOnEveryLane(t *testing.T) {
	sizes := thresholds.Around(thresholds.Groups | thresholds.Sums)
	for size := 2; size <= 4; size++ { // each lane has its part of the sizes, and large ones among them
		for _, lane := range []string{transport.LaneLocal, transport.LaneBulk, transport.LaneQUIC} {
			t.Run(fmt.Sprintf("lane=%s/p=%d", lane, size), func(t *testing.T) {
				gs := groups(t, onLane(t, size, lane), "g")
				if size == 4 { // pieces that travel inline beside one that lies in a buffer
					onHosts(gs, "a", "b", "a", "b")
				}
				for i := range soak.Cases(3) {
					r := rand.New(rand.NewPCG(uint64(size), uint64(i)))
					n := around(sizes, size, device.Float64)
					reduced[float64](t, gs, r, n, []Op{Sum, Prod, Min}[r.IntN(3)])
				}
			})
		}
	}
	require.Empty(t, sizes.Missing())
}

// What is large is read once and written once, and small things cost little more.
func TestMembersOnOneHostReadEachArrayOnceAndWriteOne(t *testing.T) {
	b := hostBuffer(t, make([]byte, device.SharedFrom))
	defer b.Release() //nolint:errcheck // ours
	if _, shared := b.Segment(); !shared {
		return // nothing is shared where there are no segments
	}
	for size := 2; size <= 4; size++ {
		t.Run(fmt.Sprintf("p=%d", size), func(t *testing.T) {
			gs := groups(t, onLane(t, size, transport.LaneLocal), "g")
			for round := range 3 {
				length := smallPair + 4<<20*round + 64*round
				in := make([]*device.Buffer, size)
				for i := range in {
					in[i] = hostBuffer(t, make([]byte, length))
					gs[i].moved.Store(0)
				}
				each(t, gs, func(i int) error {
					out, err := gs[i].AllReduced(t.Context(), Sum, device.Float32, in[i])
					if err != nil {
						return err
					}
					require.True(t, out.ReadOnly())
					return out.Release()
				})
				var moved int64
				for i := range gs {
					moved += gs[i].moved.Load()
					require.NoError(t, in[i].Release())
				}
				if round > 0 { // the smallest is of the algorithm before
					require.LessOrEqual(t, float64(moved), 1.05*float64((size+1)*length), "%d members, %d bytes", size, length)
					require.GreaterOrEqual(t, moved, int64((size+1)*length), "all was counted")
				}
			}
		})
	}
}

func TestABufferThatCannotBeSummedIsRefused(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 1), "g")
	b := hostBuffer(t, make([]byte, 6))
	for _, x := range []*device.Buffer{nil, b} {
		_, err := gs[0].AllReduced(t.Context(), Sum, device.Float32, x)
		require.ErrorIs(t, err, ErrArguments)
	}
	require.NoError(t, b.Release())
	_, err := gs[0].AllReduced(t.Context(), Sum, device.Int32, nil)
	require.ErrorIs(t, err, ErrArguments)
	require.NoError(t, gs[0].Barrier(t.Context()), "the group lives on")
}
