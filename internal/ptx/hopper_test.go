package ptx

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device/cuda"
)

func TestTextForOneGPUIsLoadedOnNoOther(t *testing.T) {
	for arch, loads := range map[int]bool{80: false, 90: true, 100: false} {
		_, err := New(Config{Arch: arch}).Load([]byte(texts(t)["hopper"]))
		if loads {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, cuda.ErrImage)
		}
	}
}

// brains draws numbers of bfloat16.
func brains(n int) []uint16 {
	out := make([]uint16, n)
	for k, v := range normal(n, 1) {
		out[k] = nearestBrain(v)
	}
	return out
}

func TestProductsOfFourWarpsReadFactorsAsDescriptorsSay(t *testing.T) {
	r := newRig(t, Config{}, texts(t)["hopper"])
	a, b := brains(64*16), brains(16*16)
	brain := func(v uint16) float64 { return float64(math.Float32frombits(uint32(v) << 16)) }
	want := make([]float64, 64*16)
	for i := range 64 {
		for j := range 16 {
			for k := range 16 {
				want[i*16+j] += brain(a[i*16+k]) * brain(b[j*16+k])
			}
		}
	}
	for _, wide := range []int{16, 32, 64, 128} {
		for _, turns := range []string{"00", "01", "10", "11"} {
			out := up(r, make([]float32, 64*16))
			require.NoError(t, r.launch(fmt.Sprintf("product_%d_%s", wide, turns), 1, 128, 0, up(r, a), up(r, b), out))
			near(t, want, down[float32](r, out, 64*16), 1e-5)
		}
	}
}

func TestEveryMistakeWithProductsOfFourWarpsIsFound(t *testing.T) {
	for name, says := range map[string]string{
		"right": "", "no_fence": "no wgmma.fence", "no_proxy": "made no fence.proxy.async", "unwritten": "which nobody wrote",
	} {
		r := newRig(t, Config{}, texts(t)["hopper"])
		out := up(r, make([]float32, 64*16))
		err := r.launch(name, 1, 128, 0, out)
		if says != "" {
			require.ErrorContains(t, err, says, name)
			continue
		}
		require.NoError(t, err)
		for _, v := range down[float32](r, out, 64*16) {
			require.Equal(t, float32(16), v)
		}
	}
	r := newRig(t, Config{}, texts(t)["hopper"])
	out := up(r, make([]float32, 64*16))
	require.NoError(t, r.launch("no_wait", 1, 128, 0, out))
	for _, v := range down[float32](r, out, 64*16) {
		require.True(t, math.IsNaN(float64(v)), "sums that were not waited for")
	}
	require.ErrorContains(t, r.launch("right", 1, 24, 0, out), "a part of a warp")
}

// tiles launches a kernel of hopper.cu that copies 5 tiles of 16 by 64 of an array, from a place
// on.
func (r *rig) tiles(kernel string, x cuda.TensorMap, at [4]int32) ([]uint16, error) {
	raw, err := r.m.EncodeMap(x)
	require.NoError(r.t, err)
	const n = 5 * 16 * 64
	to := up(r, make([]uint16, n))
	f, err := r.mod.Func(kernel, 0)
	require.NoError(r.t, err)
	var l cuda.List
	l.Add(f, [3]uint32{1, 1, 1}, [3]uint32{64, 1, 1}, 0)
	for k := range len(raw) / 8 {
		l.U64(binary.LittleEndian.Uint64(raw[8*k:]))
	}
	l.Addr(to)
	for _, v := range at {
		l.U32(uint32(v))
	}
	if err := r.s.Run(&l); err != nil {
		return nil, err
	}
	if err := r.s.Sync(); err != nil {
		return nil, err
	}
	return down[uint16](r, to, n), nil
}

func TestTilesThatAreCopiedAreThoseOfTheArrayWithZerosAround(t *testing.T) {
	r := newRig(t, Config{}, texts(t)["hopper"])
	in := brains(3 * 2 * 50 * 72)
	x := cuda.TensorMap{At: up(r, in), Extents: [4]uint64{56, 43, 2, 3}, Strides: [3]uint64{2 * 72, 2 * 72 * 50, 2 * 72 * 50 * 2}, Box: [4]uint32{64, 16, 1, 1}}
	for _, at := range [][4]int32{{0, 0, 0, 0}, {8, 3, 1, 2}, {-5, -20, 0, 1}, {0, 0, 2, 0}, {60, 0, 0, 0}} {
		got, err := r.tiles("ring", x, at)
		require.NoError(t, err)
		for k, v := range got {
			want := uint16(0)
			col, row := int(at[0])+k%64, int(at[1])+k/64
			if col >= 0 && col < 56 && row >= 0 && row < 43 && at[2] < 2 {
				want = in[((int(at[3])*2+int(at[2]))*50+row)*72+col]
			}
			require.Equal(t, want, v, "element %d from %v on", k, at)
		}
	}
}

func TestEveryMistakeWithBarriersThatCountBytesIsFound(t *testing.T) {
	for name, says := range map[string]string{
		"ring_no_full": "which nobody wrote", "ring_no_empty": "more arrivals at an mbarrier", "ring_too_many": "more arrivals at an mbarrier", "ring_few_bytes": "more bytes came to an mbarrier",
		"ring_many_bytes": "deadlock", "ring_leaves": "the block ends while a tile is copied",
	} {
		r := newRig(t, Config{}, texts(t)["hopper"])
		x := cuda.TensorMap{At: up(r, brains(100*64)), Extents: [4]uint64{64, 100, 1, 1}, Strides: [3]uint64{128, 12800, 12800}, Box: [4]uint32{64, 16, 1, 1}}
		_, err := r.tiles(name, x, [4]int32{})
		require.ErrorContains(t, err, says, name)
	}
}

func TestMapsThatADriverRefusesAreRefused(t *testing.T) {
	m := New(Config{})
	right := cuda.TensorMap{At: 256, Extents: [4]uint64{64, 100, 1, 1}, Strides: [3]uint64{128, 12800, 12800}, Box: [4]uint32{64, 16, 1, 1}}
	_, err := m.EncodeMap(right)
	require.NoError(t, err)
	for says, change := range map[string]func(*cuda.TensorMap){
		"address":  func(x *cuda.TensorMap) { x.At = 8 },
		"extent 1": func(x *cuda.TensorMap) { x.Extents[1] = 0 },
		"stride 2": func(x *cuda.TensorMap) { x.Strides[1] = 12808 },
		"rows of":  func(x *cuda.TensorMap) { x.Box[0] = 72 },
	} {
		x := right
		change(&x)
		_, err := m.EncodeMap(x)
		require.ErrorContains(t, err, says)
	}
	_, err = New(Config{Arch: 80}).EncodeMap(right)
	require.ErrorIs(t, err, cuda.ErrNoMaps)
	r := newRig(t, Config{}, texts(t)["hopper"])
	right.At = up(r, brains(64))
	_, err = r.tiles("ring", right, [4]int32{})
	require.ErrorContains(t, err, "bytes that are not there")
}
