package ptx

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLanesGetWhatTheManualSays(t *testing.T) {
	r := newRig(t, Config{}, texts(t)["warps"])
	const threads = 64
	a := make([]int32, threads)
	for k := range a {
		a[k] = int32(rand.IntN(20)) - 10
	}
	a[3], a[40] = 7, -2000
	po := up(r, make([]int32, 12*threads))
	require.NoError(t, r.launch("lanes", 1, threads, 0, up(r, a), po))
	out := down[int32](r, po, 12*threads)
	positive := 0
	for _, v := range a {
		if v > 0 {
			positive++
		}
	}
	flag := func(b bool) int32 {
		if b {
			return 1
		}
		return 0
	}
	for th := range threads {
		warp, l := a[th/32*32:][:32], th%32
		pick := func(j int, ok bool) int32 {
			if !ok {
				j = l
			}
			return warp[j]
		}
		var ballot, same uint32
		any7, all := false, true
		for j, v := range warp {
			ballot |= uint32(flag(v > 0)) << j
			same |= uint32(flag(v&3 == warp[l]&3)) << j
			any7 = any7 || v == 7
			all = all && v > -1000
		}
		want := []int32{warp[5], warp[l/8*8+l*3%8], pick(l-3, l >= 3), pick(l+5, l%16+5 < 16), warp[l^9], int32(ballot),
			flag(any7)*2 + flag(all), int32(same), flag(l < 16) * warp[l^1], -1, int32(positive), 2}
		if warp[l] > 0 {
			want[9] = int32(ballot)
		}
		require.Equal(t, want, out[12*th:12*th+12], "thread %d", th)
	}
}

func TestAtomicOperationsOfAllThreadsCount(t *testing.T) {
	r := newRig(t, Config{Races: true}, texts(t)["warps"])
	f, d, u := up(r, []float32{1}), up(r, []float64{2}), up(r, []uint32{5, 0, 0, ^uint32(0)})
	q, s := up(r, []uint64{1, 2}), up(r, []int32{0, 0})
	require.NoError(t, r.launch("atomics", 3, 64, 0, f, d, u, q, s))
	const n = 3 * 64
	require.Equal(t, []float32{1 + n/2}, down[float32](r, f, 1))
	require.Equal(t, []float64{2 + n/4}, down[float64](r, d, 1))
	require.Equal(t, []uint32{5 + 3*n, 99, ^uint32(0), ^uint32(255)}, down[uint32](r, u, 4))
	require.Equal(t, []uint64{1 + n<<33, 2 + n*(n-1)/2}, down[uint64](r, q, 2))
	require.Equal(t, []int32{-50, n * (n - 1) / 2}, down[int32](r, s, 2))
}
