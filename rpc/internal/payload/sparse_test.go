package payload

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/transport"
)

// transientOf is a gradient on its way.
func transientOf(t testing.TB, x *autodiff.Tensor) *autodiff.Tensor {
	buf, err := x.Acquire()
	require.NoError(t, err)
	return autodiff.Transient(x.Type(), buf)
}

// someGradients are absent, dense and sparse ones, some of these without rows.
func someGradients(t testing.TB, r *rand.Rand) (grads []*autodiff.Tensor, targets []device.ID) {
	for range r.IntN(6) {
		var g *autodiff.Tensor
		switch r.IntN(3) {
		case 0:
			g = transientOf(t, autodiff.RandFrom(r, 1+r.IntN(4), 2))
		case 1:
			v, n := 1+r.IntN(5), r.IntN(9)
			ids := make([]int64, n)
			for i := range ids {
				ids[i] = r.Int64N(int64(v))
			}
			at, values := transientOf(t, autodiff.New(ids, n)), transientOf(t, autodiff.RandFrom(r, n, 3))
			g = autodiff.Sparse(v, at, values)
			require.NoError(t, g.Err())
			autodiff.Release(at, values)
		}
		grads, targets = append(grads, g), append(targets, device.Host().ID())
	}
	return grads, targets
}

func TestGradientsArriveInTheFormInWhichTheyLeft(t *testing.T) {
	before := device.Host().Stats().Live
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		grads, targets := someGradients(t, r)
		m := &transport.Message{}
		info, err := OutgoingGradients(m, grads, targets)
		require.NoError(t, err)
		got, err := IncomingGradients(m, info)
		require.NoError(t, err)
		require.Len(t, got, len(grads))
		for i, g := range grads {
			require.Equal(t, g == nil, got[i] == nil)
			if g == nil {
				continue
			}
			require.Equal(t, g.IsSparse(), got[i].IsSparse())
			require.True(t, g.Type().Equal(got[i].Type()))
			require.Same(t, got[i], got[i].Coalesce(), "no index travels twice")
			want, err := autodiff.Values[float32](g)
			require.NoError(t, err)
			have, err := autodiff.Values[float32](got[i])
			require.NoError(t, err)
			require.Equal(t, want, have)
		}
		autodiff.Release(got...)
		autodiff.Release(grads...)
		require.Empty(t, m.Tensors)
		require.LessOrEqual(t, device.Host().Stats().Live, before)
	}
}

// tensorsFrom reads a message's tensors out of bytes: dtypes, shapes, what the indices are.
func tensorsFrom(t testing.TB, raw []byte) *transport.Message {
	m := &transport.Message{}
	for ; len(raw) >= 4 && len(m.Tensors) < 8; raw = raw[4:] {
		d := device.Dtype(raw[0] % 5)
		if d == device.Invalid {
			m.Tensors = append(m.Tensors, transport.Tensor{})
			continue
		}
		typ := kernels.Type{Dtype: d, Shape: device.Shape{int(raw[1] % 4), int(raw[2] % 3)}[:raw[1]/4%3]}
		buf, err := device.Host().Alloc(typ.Bytes())
		require.NoError(t, err)
		mem, err := buf.Host()
		require.NoError(t, err)
		clear(mem)
		for i := range len(mem) / 8 {
			binary.LittleEndian.PutUint64(mem[8*i:], uint64(int64(int8(raw[3])))*uint64(i))
		}
		m.Tensors = append(m.Tensors, transport.Tensor{Dtype: typ.Dtype, Shape: typ.Shape, Buf: buf})
	}
	return m
}

// Whatever a peer says of its gradients: no panic, nothing is left, and what is accepted can be
// summed in full.
func FuzzSparseGradients(f *testing.F) {
	i64, f32, one := byte(device.Int64), byte(device.Float32), byte(1*4)
	f.Add(0, 5, 2, 3, []byte{i64, one + 2, 0, 3, f32, 2*4 + 2, 2, 0, 0, 0, 0, 0, f32, one + 3, 0, 0})
	f.Add(0, 5, 0, 5, []byte{i64, one + 2, 0, 255, f32, 2*4 + 2, 2, 0})
	f.Add(1, 1<<62, -1, -1, []byte{f32, 0, 0, 0, i64, one, 0, 0, f32, one, 0, 0})
	f.Fuzz(func(t *testing.T, at1, extent1, at2, extent2 int, raw []byte) {
		before := device.Host().Stats().Live
		m := tensorsFrom(t, raw)
		n := len(m.Tensors)
		grads, err := IncomingGradients(m, []wire.SparseInfo{{At: at1, Extent: extent1}, {At: at2, Extent: extent2}})
		if err != nil {
			require.True(t, errors.Is(err, wire.ErrProtocol), "%v", err)
			require.Nil(t, grads)
		} else {
			require.Len(t, grads, n-2)
			require.Empty(t, m.Tensors)
		}
		for _, g := range grads {
			if g != nil && g.Type().Bytes() <= 1<<20 {
				buf, err := g.Acquire()
				require.NoError(t, err)
				require.NoError(t, buf.Release())
			}
		}
		autodiff.Release(grads...)
		m.Release()
		require.Equal(t, before, device.Host().Stats().Live)
	})
}

func TestAMessageOfSparseGradientsThatAreNoneIsRefused(t *testing.T) {
	i64, f32 := byte(device.Int64), byte(device.Float32)
	ids, values, absent := []byte{i64, 4 + 2, 0, 3}, []byte{f32, 2*4 + 2, 2, 0}, []byte{0, 0, 0, 0}
	join := func(parts ...[]byte) (all []byte) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	for why, c := range map[string]struct {
		raw  []byte
		info []wire.SparseInfo
		says string
	}{
		"an index beyond the extent":   {join(ids, values), []wire.SparseInfo{{At: 0, Extent: 3}}, "index out of range"},
		"no values":                    {ids, []wire.SparseInfo{{At: 0, Extent: 4}}, "lacks its parts"},
		"absent values":                {join(ids, absent), []wire.SparseInfo{{At: 0, Extent: 4}}, "lacks its parts"},
		"parts in the wrong order":     {join(values, ids), []wire.SparseInfo{{At: 0, Extent: 4}}, "no rows"},
		"a gradient that is not there": {join(ids, values), []wire.SparseInfo{{At: 7, Extent: 4}}, "gradient 7"},
		"one gradient named twice":     {join(ids, values, ids, values), []wire.SparseInfo{{At: 0, Extent: 4}, {At: 0, Extent: 4}}, "gradient 0"},
		"an endless extent":            {join(ids, values), []wire.SparseInfo{{At: 0, Extent: 1 << 62}}, "too many elements"},
		"a negative extent":            {join(ids, values), []wire.SparseInfo{{At: 0, Extent: -1}}, "negative"},
	} {
		before := device.Host().Stats().Live
		m := tensorsFrom(t, c.raw)
		_, err := IncomingGradients(m, c.info)
		require.ErrorIs(t, err, wire.ErrProtocol, why)
		require.ErrorContains(t, err, c.says, why)
		m.Release()
		require.Equal(t, before, device.Host().Stats().Live, why)
	}
}
