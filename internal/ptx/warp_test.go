package ptx

import (
	"fmt"
	"math/rand/v2"
	"strings"
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

func TestSpecialRegistersSayWhereAThreadIs(t *testing.T) {
	names := []string{"%tid.x", "%tid.y", "%tid.z", "%ntid.y", "%ctaid.x", "%ctaid.y", "%nctaid.x", "%nctaid.z", "%laneid", "%warpid", "%nwarpid",
		"%lanemask_eq", "%lanemask_lt", "%lanemask_le", "%lanemask_gt", "%lanemask_ge", "%dynamic_smem_size", "%total_smem_size", "WARP_SZ"}
	var b strings.Builder
	b.WriteString(".visible .entry k(.param .u64 out) {\n.reg .b32 %r<9>; .reg .b64 %d<3>; .shared .b8 own[16];\nld.param.u64 %d0, [out];\n")
	b.WriteString("mov.u32 %r0, %tid.z; mov.u32 %r1, %ntid.y; mov.u32 %r2, %tid.y; mad.lo.u32 %r0, %r0, %r1, %r2; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r0, %r0, %r1, %r2;\n")
	b.WriteString("mov.u32 %r3, %ctaid.y; mov.u32 %r4, %nctaid.x; mov.u32 %r5, %ctaid.x; mad.lo.u32 %r3, %r3, %r4, %r5; mad.lo.u32 %r0, %r3, 60, %r0;\n")
	fmt.Fprintf(&b, "mul.wide.u32 %%d1, %%r0, %d; add.u64 %%d0, %%d0, %%d1;\n", 4*len(names))
	for k, n := range names {
		fmt.Fprintf(&b, "mov.u32 %%r1, %s; st.global.u32 [%%d0+%d], %%r1;\n", n, 4*k)
	}
	b.WriteString("}\n")
	r := newRig(t, Config{}, whole(b.String()))
	out := up(r, make([]uint32, 6*60*len(names)))
	for range 2 { // and again, in a block that was used
		require.NoError(t, r.launch3("k", [3]uint32{2, 3, 1}, [3]uint32{5, 4, 3}, 32, out))
		got := down[uint32](r, out, 6*60*len(names))
		for block := range uint32(6) {
			for th := range uint32(60) {
				one := uint32(1) << (th % 32)
				want := []uint32{th % 5, th / 5 % 4, th / 20, 4, block % 2, block / 2, 2, 1, th % 32, th / 32, 2,
					one, one - 1, one | (one - 1), ^(one | (one - 1)), ^(one - 1), 32, 48, 32}
				require.Equal(t, want, got[:len(want)])
				got = got[len(want):]
			}
		}
	}
}

func TestABarrierForANumberOfThreadsIsCompleteWhenAsManyHaveCome(t *testing.T) {
	const first, second = "@%p1 ", "@!%p1 " // warps
	const front, back = "@%p2 ", "@!%p2 "   // halves of each
	for name, c := range map[string]struct {
		threads int
		body    string
		says    string
	}{
		"once":                 {64, first + "bar.arrive 1, 64; " + second + "bar.sync 1, 64;", ""},
		"again":                {64, "bar.sync 1, 64; " + first + "bar.arrive 1, 64; " + second + "bar.sync 1, 64;", ""},
		"twice, by one warp":   {64, first + "bar.arrive 1, 64; " + first + "bar.arrive 1, 64; " + second + "bar.sync 1, 64;", "deadlock: barrier 1"},
		"one barrier of all":   {64, first + "bar.arrive 1, 64; " + second + "bar.sync 1;", ""},
		"other counts":         {64, first + "bar.arrive 1, 64; " + second + "bar.sync 1, 96;", "barrier 1 is for 64 threads, and for 96, too"},
		"another count of all": {64, first + "bar.arrive 1, 96; " + second + "bar.sync 1;", "barrier 1 is for 96 threads, and for 64, too"},
		"no whole warps":       {64, "bar.sync 1, 48;", "a barrier for 48 threads, which are no whole warps"},
		"more than there are":  {64, "bar.sync 1, 96;", "deadlock: barrier 1"},
		"the next phase":       {96, "bar.arrive 1, 64;", ""},
		"a small warp":         {48, "bar.sync 1, 64;", ""},
		"a small warp arrives": {40, first + "bar.sync 1, 64; " + second + "bar.arrive 1, 64;", ""},
		// A GPU counts whole warps: where their halves are at two barriers it hangs.
		"halves of two warps":        {64, front + "barrier.sync 1, 32; " + back + "barrier.sync 2, 32;", "deadlock: barrier 1"},
		"half of a warp arrives":     {64, first + "bra wait; " + front + "barrier.arrive 1, 64; " + back + "barrier.sync 2, 64; wait: " + first + "barrier.sync 1, 64;", "deadlock: barrier 1"},
		"a half waits for the other": {64, first + "bra all; " + front + "bra more; all: barrier.sync 1, 64; more: bar.warp.sync -1;", "lanes ffff0000 never come"},
		"whose other half ended":     {64, front + "bra go; exit; go: barrier.sync 1, 64;", ""},
		"halves in turn":             {64, front + "barrier.sync 1, 64; " + back + "barrier.sync 1, 64;", ""},
		"halves, which are one warp": {64, first + "bra one; barrier.sync 1, 64; bra end; one: " + front + "barrier.arrive 1, 64; " + back + "barrier.arrive 1, 64; end:", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{}, whole(".visible .entry k()\n{\n.reg .b32 %r<2>;\n.reg .pred %p<3>;\nmov.u32 %r1, %tid.x;\n"+
				"setp.lt.u32 %p1, %r1, 32;\nand.b32 %r1, %r1, 31;\nsetp.lt.u32 %p2, %r1, 16;\n"+c.body+"\nret;\n}\n"))
			err := r.launch("k", 1, c.threads, 0)
			if c.says == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.says)
			}
		})
	}
}
