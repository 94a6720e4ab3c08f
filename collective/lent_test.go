package collective

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/internal/thresholds"
	"github.com/weft-project/weft/transport"
)

// holds compares a new buffer with what it should hold, and releases it.
func holds(what string, b *device.Buffer, want []byte) error {
	got, err := b.Host()
	if err == nil && !bytes.Equal(want, got[:len(want)]) {
		err = fmt.Errorf("%s is not its definition", what)
	}
	if err == nil && b.Len()-len(want) > 3 {
		err = fmt.Errorf("%s has %d bytes; expected %d", what, b.Len(), len(want))
	}
	return errors.Join(err, b.Release())
}

// handed has all members bring buffers of float64, and compares all that they get with the
// definition. Every member releases what it brought before it looks.
func handed(t *testing.T, gs []*Group, r *rand.Rand, n int) {
	size, root := len(gs), r.IntN(len(gs))
	in, cross := make([][]float64, size), make([][][]float64, size)
	even := drawn[float64](r, size, n)
	for i := range in {
		in[i] = drawn[float64](r, 1, n+r.IntN(3))[0]
		for range size {
			cross[i] = append(cross[i], drawn[float64](r, 1, r.IntN(n+1))[0])
		}
	}
	sum := defined(Sum, even)
	lend := func(x []float64) (*device.Buffer, error) { return bufferOf(device.Host(), device.Bytes(x)) }
	each(t, gs, func(i int) (err error) {
		g, c := gs[i], t.Context()
		x, err1 := lend(in[i])
		y, err2 := lend(even[i])
		var z []*device.Buffer
		for _, part := range cross[i] {
			b, e := lend(part)
			z, err = append(z, b), errors.Join(err, e)
		}
		if err = errors.Join(err, err1, err2); err != nil {
			return err
		}
		all, err1 := g.AllGathered(c, device.Float64, x)
		share, err2 := g.ReduceScattered(c, Sum, device.Float64, y)
		parts, err3 := g.Exchanged(c, device.Float64, z)
		var mine *device.Buffer
		if i == root {
			mine = y
		}
		cast, err4 := g.Broadcasted(c, device.Float64, n, mine, root)
		for _, b := range append(z, x, y) {
			err = errors.Join(err, b.Release())
		}
		if err = errors.Join(err, err1, err2, err3, err4); err != nil {
			return err
		}
		for k := range gs {
			err = errors.Join(err, holds(fmt.Sprintf("AllGather of %d from rank %d", n, k), all[k], device.Bytes(in[k])))
			err = errors.Join(err, holds(fmt.Sprintf("AllToAll of %d from rank %d", n, k), parts[k], device.Bytes(cross[k][i])))
		}
		lo, hi := Share(n, size, i)
		return errors.Join(err, holds(fmt.Sprintf("ReduceScatter of %d", n), share, device.Bytes(sum[lo:hi])),
			holds(fmt.Sprintf("Broadcast of %d", n), cast, device.Bytes(even[root])))
	})
}

func TestBuffersThatAreHandedAroundAreTheirDefinitionOnEveryLane(t *testing.T) {
	sizes := thresholds.Around(thresholds.Groups | thresholds.Sums)
	for size := 1; size <= 4; size++ { // each lane has its part of the sizes, and large ones among them
		for _, lane := range []string{transport.LaneLocal, transport.LaneBulk, transport.LaneQUIC} {
			t.Run(fmt.Sprintf("lane=%s/p=%d", lane, size), func(t *testing.T) {
				gs := groups(t, onLane(t, size, lane), "g")
				if size == 4 {
					onHosts(gs, "a", "b", "a", "b")
				}
				for i := range soak.Cases(2) {
					r := rand.New(rand.NewPCG(uint64(size), uint64(i)))
					handed(t, gs, r, around(sizes, max(size, 2), device.Float64))
				}
			})
		}
	}
	require.Empty(t, sizes.Missing())
}

func TestMembersOnOneHostHandBuffersAroundWithoutACopy(t *testing.T) {
	const size, n = 3, 768 << 10 // bytes; each share is of whole pages
	gs := groups(t, onLane(t, size, transport.LaneLocal), "g")
	each(t, gs, func(i int) error {
		g, c := gs[i], t.Context()
		x, err := bufferOf(device.Host(), make([]byte, n))
		if err != nil {
			return err
		}
		defer x.Release() //nolint:errcheck // ours
		moved := func(what string, most int64, fn func() ([]*device.Buffer, error)) error {
			before := g.moved.Load()
			all, err := fn()
			for _, b := range all {
				err = errors.Join(err, b.Release())
			}
			if got := g.moved.Load() - before; err == nil && got > most {
				err = fmt.Errorf("%s moved %d bytes; expected %d at most", what, got, most)
			}
			return err
		}
		one := func(b *device.Buffer, err error) ([]*device.Buffer, error) {
			if err != nil {
				return nil, err
			}
			return []*device.Buffer{b}, nil
		}
		return errors.Join(
			moved("AllGather", 0, func() ([]*device.Buffer, error) { return g.AllGathered(c, device.Float32, x) }),
			moved("AllToAll", 0, func() ([]*device.Buffer, error) { return g.Exchanged(c, device.Float32, []*device.Buffer{x, x, x}) }),
			moved("Broadcast", 0, func() ([]*device.Buffer, error) {
				if i != 1 {
					return one(g.Broadcasted(c, device.Float32, n/4, nil, 1))
				}
				return one(g.Broadcasted(c, device.Float32, n/4, x, 1))
			}),
			moved("ReduceScatter", (size+1)*n/size, func() ([]*device.Buffer, error) { return one(g.ReduceScattered(c, Sum, device.Float32, x)) }),
		)
	})
}

func TestABufferThatCannotBeHandedAroundIsRefusedAndToldToAll(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 2), "g")
	odd, five := hostBuffer(t, make([]byte, 6)), hostBuffer(t, make([]byte, 20))
	gone := hostBuffer(t, make([]byte, 8))
	require.NoError(t, gone.Release())
	c := t.Context()
	barrier := func(g *Group) error { return g.Barrier(c) }
	for _, x := range []*device.Buffer{nil, odd, gone} {
		says := map[*device.Buffer]string{nil: "no buffer", odd: "6 bytes; expected elements of float32", gone: "released"}[x]
		for _, call := range []func(g *Group) error{
			func(g *Group) error { _, err := g.AllReduced(c, Sum, device.Float32, x); return err },
			func(g *Group) error { _, err := g.ReduceScattered(c, Sum, device.Float32, x); return err },
			func(g *Group) error { _, err := g.AllGathered(c, device.Float32, x); return err },
			func(g *Group) error { _, err := g.Exchanged(c, device.Float32, []*device.Buffer{five, x}); return err },
			func(g *Group) error { _, err := g.Broadcasted(c, device.Float32, 1, x, 0); return err },
		} {
			wrong(t, gs, ErrArguments, says, call, barrier)
		}
	}
	wrong(t, gs, ErrArguments, "buffers for 1 members; the group has 2", func(g *Group) error { _, err := g.Exchanged(c, device.Float32, []*device.Buffer{five}); return err }, barrier)
	wrong(t, gs, ErrArguments, "expected 4 elements", func(g *Group) error { _, err := g.Broadcasted(c, device.Float32, 4, five, 0); return err }, barrier)
	for _, n := range []int{-1, math.MaxInt/2 + 6} { // 4 times the latter is 20, in an int
		says := fmt.Sprintf("%d elements", n)
		wrong(t, gs, ErrArguments, says, func(g *Group) error { _, err := g.Broadcasted(c, device.Float32, n, five, 0); return err }, barrier)
		wrong(t, gs, ErrArguments, says, func(g *Group) error { _, err := g.Broadcasted(c, device.Float32, n, nil, 1); return err }, barrier)
	}
	require.NoError(t, errors.Join(odd.Release(), five.Release()))
}

func TestBuffersOfAnOddNumberOfBFloat16AreHandedAround(t *testing.T) {
	for _, lane := range []string{transport.LaneLocal, transport.LaneBulk} {
		t.Run(lane, func(t *testing.T) {
			gs := groups(t, onLane(t, 2, lane), "g")
			for _, n := range []int{1, 2, 3, inlined/2 + 1} {
				each(t, gs, func(i int) error {
					mem := bytes.Repeat([]byte{byte(i), byte(n)}, n)
					x, err := bufferOf(device.Host(), mem)
					if err != nil {
						return err
					}
					all, err := gs[i].AllGathered(t.Context(), device.BFloat16, x)
					if err = errors.Join(err, x.Release()); err != nil {
						return err
					}
					for k, b := range all {
						if b.Len() != 2*n {
							err = errors.Join(err, fmt.Errorf("%d bytes; expected %d", b.Len(), 2*n))
						}
						err = errors.Join(err, holds("AllGather of bfloat16", b, bytes.Repeat([]byte{byte(k), byte(n)}, n)))
					}
					return err
				})
			}
		})
	}
}
